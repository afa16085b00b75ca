#include "server/trace/span_exporter.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "nlohmann/json.hpp"
#include "server/base/blocking_call.h"
#include "server/base/code_name.h"
#include "server/base/config_error.h"
#include "server/base/monotonic.h"
#include "server/base/small_file.h"
#include "server/base/version.h"
#include "server/trace/spans.h"

namespace counterweight::server {
namespace {

constexpr char kMethod[] =
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr char kScope[] = "counterweight-server";

}  // namespace

std::unique_ptr<SpanExporter> SpanExporter::Start(const OtlpOptions& options,
                                                  RequestLog* log,
                                                  std::string* error) {
  std::shared_ptr<grpc::ChannelCredentials> credentials =
      grpc::InsecureChannelCredentials();
  if (options.has_tls) {
    grpc::SslCredentialsOptions tls;
    if (!options.ca_file.empty()) {
      absl::StatusOr<std::string> roots = ReadSmallFile(options.ca_file);
      if (!roots.ok()) {
        *error = "OTEL_EXPORTER_OTLP_CERTIFICATE=" + options.ca_file + ": " +
                 MessageOf(roots.status());
        return nullptr;
      }
      tls.pem_root_certs = *std::move(roots);
    }
    credentials = grpc::SslCredentials(tls);
  }
  grpc::ChannelArguments arguments;
  if (!MayUseProxy(options)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return std::unique_ptr<SpanExporter>(new SpanExporter(
      options,
      grpc::CreateCustomChannel(options.target, credentials, arguments), log));
}

SpanExporter::SpanExporter(const OtlpOptions& options,
                           std::shared_ptr<grpc::Channel> channel,
                           RequestLog* log)
    : options_(options),
      channel_(std::move(channel)),
      log_(log),
      thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
    if (in_flight_ != nullptr) in_flight_->TryCancel();
  }
  stop_.notify_all();
  thread_.join();
}

void SpanExporter::Add(const RequestRecord& record) {
  otlp::ScopeSpans spans;
  AddSpans(record, std::chrono::steady_clock::now(), &spans);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waiting_.size() == kMaxWaiting) {
    dropped_ += waiting_.front().spans_size();
    waiting_.pop_front();
  }
  waiting_.push_back(std::move(spans));
}

void SpanExporter::Run() {
  bool is_last = false;
  while (!is_last) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      is_last = stop_.wait_for(lock, kPeriod, [this] { return is_stopping_; });
    }
    while (Export()) {
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const otlp::ScopeSpans& spans : waiting_) dropped_ += spans.spans_size();
}

bool SpanExporter::Export() {
  otlp::ExportRequest request;
  otlp::ResourceSpans* const sent = request.add_resource_spans();
  for (const auto& [key, value] : options_.resource) {
    otlp::KeyValue* const attribute =
        sent->mutable_resource()->add_attributes();
    attribute->set_key(key);
    attribute->mutable_value()->set_string_value(value);
  }
  otlp::ScopeSpans* const scope = sent->add_scope_spans();
  scope->mutable_scope()->set_name(kScope);
  scope->mutable_scope()->set_version(std::string(Version()));
  grpc::ClientContext context;
  for (const auto& [key, value] : options_.headers) {
    context.AddMetadata(key, value);
  }
  bool is_last = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < kMaxBatch && !waiting_.empty(); ++i) {
      scope->mutable_spans()->MergeFrom(waiting_.front().spans());
      waiting_.pop_front();
    }
    is_last = is_stopping_;
    context.set_deadline(After(is_last ? kLastDeadline : options_.deadline));
    in_flight_ = &context;
  }
  const int64_t count = scope->spans_size();
  grpc::Status status;
  otlp::ExportResponse response;
  if (count > 0) {
    status = BlockingCall(channel_, kMethod, &context, request, &response);
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    in_flight_ = nullptr;
  }
  if (count == 0) return false;
  const int64_t rejected =
      status.ok() ? std::clamp<int64_t>(
                        response.partial_success().rejected_spans(), 0, count)
                  : count;
  exported_ += count - rejected;
  dropped_ += rejected;
  // A collector that stays away has one line, and one when it is back.
  if (status.ok() == has_failed_) {
    has_failed_ = !status.ok();
    if (has_failed_) {
      log_->Event(spdlog::level::warn, "spans_lost",
                  {{"target", options_.target},
                   {"code", CodeName(status.error_code())},
                   {"error", status.error_message()}});
    } else {
      log_->Event(spdlog::level::info, "spans_taken_again",
                  {{"target", options_.target}});
    }
  }
  return status.ok() && !is_last;
}

}  // namespace counterweight::server
