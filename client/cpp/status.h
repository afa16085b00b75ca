// Outcome of a call.
#ifndef COUNTERWEIGHT_CLIENT_CPP_STATUS_H_
#define COUNTERWEIGHT_CLIENT_CPP_STATUS_H_

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace counterweight::client {

// gRPC's codes, with gRPC's numbers. proto/README.md lists the causes of each.
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

// The name that gRPC uses: "INVALID_ARGUMENT".
std::string_view ToString(StatusCode code);

// One invalid field.
struct FieldViolation {
  // Path in the request, with the names of the .proto files:
  // "tensors[OLD_LOG_PROBS]". Violations that this library finds have paths of
  // Request and Options: "inputs[1]", "options.chunk_bytes".
  std::string field;
  // The problem and the values that would be accepted.
  std::string description;
};

struct [[nodiscard]] Status {
  StatusCode code = StatusCode::kOk;
  // A sentence for people; empty after success.
  std::string message;
  // kInvalidArgument: every invalid field, at most 16.
  std::vector<FieldViolation> violations;
  // The server's delay before the next attempt, from 0 to ten years. Absent:
  // the server named none, and waiting does not help.
  std::optional<std::chrono::milliseconds> retry_after;
  // The request_id of the call, given by the caller or made by the library; the
  // server's log has it. Pass it again if you repeat the call yourself, so that
  // drift metrics count the batch once. Empty for calls without one.
  std::string request_id;

  bool ok() const { return code == StatusCode::kOk; }
  // "OK", or the code, the message, and the violations that the message leaves
  // out.
  std::string ToString() const;
};

// kInvalidArgument with these violations, at least one.
Status InvalidArgument(std::vector<FieldViolation> violations);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_STATUS_H_
