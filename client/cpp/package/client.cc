#include "client/cpp/package/client.h"

#include <algorithm>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/package/convert.h"
#include "client/cpp/submissions.h"

namespace counterweight {

class Client::Implementation {
 public:
  Implementation(const std::string& target, const Options& options)
      : client(target, options),
        submissions(std::max(1, options.max_in_flight)) {}
  client::Client client;
  // The last member: its destructor waits for calls that use the client.
  client::Submissions submissions;
};

struct Result::Memory {
  client::Response response;
};

const OutputTensor* Result::Find(Role role) const {
  for (const OutputTensor& output : outputs) {
    if (output.role == role) return &output;
  }
  return nullptr;
}

Client::Client(const std::string& target, const Options& options)
    : implementation_(std::make_unique<Implementation>(target, options)) {}

Client::~Client() { Close(); }

std::future<Status> Client::Submit(Request request, Result* result,
                                   CallOptions call_options) {
  return implementation_->submissions.Run(
      [this, request = std::move(request), result,
       call_options = std::move(call_options)] {
        return Correct(request, result, call_options);
      });
}

void Client::Close() { implementation_->client.Close(); }

Status Client::Correct(const Request& request, Result* result,
                       const CallOptions& call_options) {
  client::Request converted;
  Convert(request, &converted);
  if (!converted.header.mutable_method()->ParseFromString(
          request.method.message_)) {
    return client::InvalidArgument({{"method", "is damaged"}});
  }
  if (result->memory_ == nullptr) {
    result->memory_ = std::make_shared<Result::Memory>();
  }
  client::Response* const response = &result->memory_->response;
  Status status =
      implementation_->client.Correct(converted, response, call_options);
  if (status.ok()) Convert(*response, result);
  return status;
}

Status Client::GetServerInfo(ServerInfo* info,
                             const CallOptions& call_options) {
  v1::GetServerInfoResponse message;
  Status status = implementation_->client.GetServerInfo(&message, call_options);
  if (status.ok()) Convert(message, info);
  return status;
}

Status Client::ListMethods(std::vector<MethodInfo>* methods,
                           const CallOptions& call_options) {
  v1::ListMethodsResponse message;
  Status status = implementation_->client.ListMethods(&message, call_options);
  if (status.ok()) Convert(message, methods);
  return status;
}

Status Client::MergeSums(std::span<const PartialSums> parts, PartialSums* sums,
                         const CallOptions& call_options) {
  v1::MergeSumsRequest request;
  for (const PartialSums& part : parts) Convert(part, request.add_parts());
  v1::MergeSumsResponse response;
  Status status =
      implementation_->client.MergeSums(request, &response, call_options);
  if (status.ok()) Convert(response.sums(), sums);
  return status;
}

Status Client::MetricsOf(const PartialSums& sums, const Method& method,
                         StepTotals* totals, const CallOptions& call_options) {
  v1::MergeSumsRequest request;
  Convert(sums, request.add_parts());
  if (!request.mutable_method()->ParseFromString(method.message_)) {
    return client::InvalidArgument({{"method", "is damaged"}});
  }
  v1::MergeSumsResponse response;
  Status status =
      implementation_->client.MergeSums(request, &response, call_options);
  if (status.ok()) Convert(response, totals);
  return status;
}

Status Client::Allocate(size_t bytes, Access access, SharedBuffer* buffer) {
  return implementation_->client.Allocate(bytes, access, buffer);
}

Status Client::Hold(const void* data, DeviceHold* hold) {
  return implementation_->client.Hold(data, hold);
}

}  // namespace counterweight
