#include "server/call/status.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/log/traceparent.h"

namespace counterweight::server {
namespace {

grpc::Status WithDetail(grpc::StatusCode code, const std::string& message,
                        const google::protobuf::Message& detail) {
  google::rpc::Status status;
  status.set_code(code);
  // A copy of grpc-message: some clients (Python's grpcio-status) refuse
  // details with another message.
  status.set_message(message);
  // False only for what exceeds 2 GiB.
  static_cast<void>(status.add_details()->PackFrom(detail));
  return grpc::Status(code, message, status.SerializeAsString());
}

}  // namespace

grpc::Status InvalidArgument(const Violations& violations) {
  const BadRequest bad_request = MakeBadRequest(violations);
  return WithDetail(grpc::StatusCode::INVALID_ARGUMENT, bad_request.message,
                    bad_request.details);
}

grpc::Status TryAgain(grpc::StatusCode code, std::string_view message,
                      double retry_after_s) {
  google::rpc::RetryInfo retry;
  const double whole = std::floor(retry_after_s);
  retry.mutable_retry_delay()->set_seconds(static_cast<int64_t>(whole));
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>((retry_after_s - whole) * 1e9));
  return WithDetail(code, std::string(message), retry);
}

void AddErrorTrailers(const grpc::Status& status,
                      grpc::CallbackServerContext* context) {
  if (status.ok()) return;
  const auto& metadata = context->client_metadata();
  if (const auto trace = metadata.find(kTraceparentKey);
      trace != metadata.end()) {
    const std::string text(trace->second.data(), trace->second.size());
    if (ParseTraceparent(text)) {
      context->AddTrailingMetadata(kTraceparentKey, text);
    }
  }
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  if (!details.ParseFromString(status.error_details()) ||
      details.details_size() == 0 || !details.details(0).UnpackTo(&retry)) {
    return;
  }
  const auto& delay = retry.retry_delay();
  const int64_t milliseconds = delay.seconds() * 1000 + delay.nanos() / 1000000;
  context->AddTrailingMetadata("grpc-retry-pushback-ms",
                               std::to_string(milliseconds));
}

}  // namespace counterweight::server
