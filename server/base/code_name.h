// The names of gRPC's status codes.
#ifndef COUNTERWEIGHT_SERVER_BASE_CODE_NAME_H_
#define COUNTERWEIGHT_SERVER_BASE_CODE_NAME_H_

#include <string_view>

#include "grpcpp/support/status.h"

namespace counterweight::server {

// "OK", "INVALID_ARGUMENT", ...
std::string_view CodeName(grpc::StatusCode code);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_CODE_NAME_H_
