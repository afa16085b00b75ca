// gRPC's own messages, in our log.
#ifndef COUNTERWEIGHT_SERVER_GRPC_LOG_H_
#define COUNTERWEIGHT_SERVER_GRPC_LOG_H_

#include "server/request_log.h"

namespace counterweight::server {

// From now on what gRPC would print to stderr goes to `log`, which must live as
// long as the process. Does nothing with gRPC versions that log through abseil.
void LogGrpcTo(RequestLog* log);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_GRPC_LOG_H_
