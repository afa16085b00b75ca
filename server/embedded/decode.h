// The way from a request's bytes to kernel types.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_DECODE_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_DECODE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

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

// Makes an id in a server's format for a request that has none.
std::string MakeRequestId();

// The bytes of the request's tensors.
std::vector<std::span<const std::byte>> InputsOf(const cw_request& request);

// The refusal where ForkGuard::is_safe() is false.
Failure ForkedInside();

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_DECODE_H_
