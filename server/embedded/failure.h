// The error of a call of the library.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_FAILURE_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_FAILURE_H_

#include <string>

#include "google/rpc/error_details.pb.h"
#include "server/engine/bad_request.h"

namespace counterweight::embedded {

// OK if the code is 0.
struct Failure {
  int code = 0;  // gRPC's, as counterweight.h has them
  std::string message;
  google::rpc::BadRequest violations;

  bool ok() const { return code == 0; }
};

// A call that the caller could not have meant.
Failure Misuse(const char* what);

// REQUIRES: violations is not empty.
Failure InvalidArgument(const server::Violations& violations);

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_FAILURE_H_
