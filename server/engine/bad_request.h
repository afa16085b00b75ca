// The form in which callers get violations, from a server or from the library.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_BAD_REQUEST_H_
#define COUNTERWEIGHT_SERVER_ENGINE_BAD_REQUEST_H_

#include <cstddef>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Bytes of grpc-status-details-bin before base64. Clients refuse trailers above
// 8192 bytes, name, message and base64 included: 4 / 3 * 5000 + 1000 bytes of
// message leave 500 for the rest.
inline constexpr size_t kMaxDetailsBytes = 5000;
inline constexpr size_t kMaxMessageBytes = 1000;

// An INVALID_ARGUMENT. The message is ASCII, can be read without the details
// and has the number of violations.
struct BadRequest {
  std::string message;
  google::rpc::BadRequest details;
};

// Holds the first violations, as many as the limits allow. REQUIRES: violations
// is not empty.
BadRequest MakeBadRequest(const Violations& violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_BAD_REQUEST_H_
