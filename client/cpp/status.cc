#include "client/cpp/status.h"

#include <utility>

namespace counterweight::client {

std::string_view ToString(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnknown:
      return "UNKNOWN";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

std::string Status::ToString() const {
  std::string text(client::ToString(code));
  if (!message.empty()) text.append(": ").append(message);
  for (const FieldViolation& violation : violations) {
    const std::string line = violation.field + ": " + violation.description;
    if (message.find(line) == std::string::npos) text.append("\n  ") += line;
  }
  return text;
}

Status InvalidArgument(std::vector<FieldViolation> violations) {
  Status status{.code = StatusCode::kInvalidArgument};
  for (const FieldViolation& violation : violations) {
    status.message.append(status.message.empty() ? "" : "; ")
        .append(violation.field)
        .append(": ")
        .append(violation.description);
  }
  status.violations = std::move(violations);
  return status;
}

}  // namespace counterweight::client
