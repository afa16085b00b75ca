// The errors that clients see.
#ifndef COUNTERWEIGHT_SERVER_CALL_STATUS_H_
#define COUNTERWEIGHT_SERVER_CALL_STATUS_H_

#include <string_view>

#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/engine/bad_request.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// INVALID_ARGUMENT with MakeBadRequest(violations). REQUIRES: violations is not
// empty.
grpc::Status InvalidArgument(const Violations& violations);

// A refusal that the same request may survive later or elsewhere, with a
// google.rpc.RetryInfo of `retry_after_s` seconds.
grpc::Status TryAgain(grpc::StatusCode code, std::string_view message,
                      double retry_after_s);

// Adds to the trailers of an error: the delay of TryAgain's status, if `status`
// is one, as gRPC's own retry policies read it (grpc-retry-pushback-ms,
// proposal A6), and the caller's traceparent, if it is valid. Does nothing if
// `status` is OK.
void AddErrorTrailers(const grpc::Status& status,
                      grpc::CallbackServerContext* context);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_STATUS_H_
