// The way from a request's bytes to kernel types.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_DECODE_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_DECODE_H_

#include "counterweight/v1/correction_service.pb.h"
#include "server/embedded/counterweight.h"
#include "server/embedded/engine.h"
#include "server/embedded/failure.h"
#include "server/engine/codec.h"

namespace counterweight::embedded {

// Reads request.message into *message and *decoded; the views of *decoded point
// into *message.
Failure Decode(const Engine& engine, const cw_request& request,
               const server::PayloadSource& source, v1::CorrectRequest* message,
               server::Decoded* decoded);

// The refusal where ForkGuard::is_safe() is false.
Failure ForkedInside();

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_DECODE_H_
