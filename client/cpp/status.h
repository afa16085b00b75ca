// How a call ended.
#ifndef COUNTERWEIGHT_CLIENT_CPP_STATUS_H_
#define COUNTERWEIGHT_CLIENT_CPP_STATUS_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace counterweight::client {

// gRPC's codes, with gRPC's numbers. proto/README.md says when the server
// answers which.
enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// As gRPC writes it: "INVALID_ARGUMENT".
std::string_view ToString(StatusCode code);

// One field that is wrong.
struct FieldViolation {
  // Path in the request, with the names of the .proto files:
  // "tensors[OLD_LOG_PROBS]". What this library itself refuses has paths of
  // Request and Options: "inputs[1]", "options.chunk_bytes".
  std::string field;
  // What is wrong and what would be right.
  std::string description;
};

struct [[nodiscard]] Status {
  StatusCode code = StatusCode::kOk;
  // A sentence for people; empty if all is well.
  std::string message;
  // kInvalidArgument: every field that is wrong, at most 16.
  std::vector<FieldViolation> violations;
  // How long the server asks to wait before the next attempt, from 0 to ten
  // years. Absent: it named no time, and waiting does not help.
  std::optional<std::chrono::milliseconds> retry_after;
  // The request_id of the call, also when the library made it; the server's
  // log has it. Pass it again when repeating the call yourself, so that drift
  // metrics count the batch once. Empty for calls without one.
  std::string request_id;

  bool ok() const { return code == StatusCode::kOk; }
  // "OK", or code, message and the violations that the message leaves out.
  std::string ToString() const;
};

// kInvalidArgument with these violations, at least one.
Status InvalidArgument(std::vector<FieldViolation> violations);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_STATUS_H_
