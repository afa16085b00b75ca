#include "client/cpp/client.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "client/cpp/shared_memory/registry.h"
#include "client/cpp/shared_memory/shared_memory_call.h"
#include "client/cpp/transport/access.h"
#include "client/cpp/transport/attempt.h"
#include "client/cpp/transport/prepared_request.h"
#include "client/cpp/transport/retry.h"
#include "client/cpp/transport/stream_call.h"
#include "client/cpp/transport/unary_call.h"

namespace counterweight::client {
namespace {

using std::chrono::steady_clock;

// Exceeds the duration of any batch and fits gRPC's clock.
constexpr std::chrono::milliseconds kLongestTimeout =
    std::chrono::hours(24) * 365;

Status ValidateAll(const std::string& target, const Options& options) {
  Status status = Validate(options);
  return status.ok() ? ValidateAccess(target, options) : status;
}

}  // namespace

class Client::Implementation {
 public:
  Implementation(const std::string& target, const Options& options)
      : options_(options),
        options_status_(ValidateAll(target, options)),
        is_unix_socket_(target.starts_with("unix:") ||
                        target.starts_with("unix-abstract:")),
        // gRPC ends the process over some options that are refused above.
        endpoint_{Connect(target, options_status_.ok() ? options : Options()),
                  options.service},
        registry_(
            std::make_shared<Registry>(options.shared_memory_pool_bytes)) {}

  Status Correct(const Request& request, Response* response,
                 const CallOptions& call_options) {
    PreparedRequest prepared;
    Status status = Prepare(request, &prepared);
    if (status.ok()) {
      status = Try(
          call_options,
          [&](Attempt* attempt) {
            return CorrectAndTell(prepared, call_options, attempt, response);
          },
          &response->attempts);
    }
    status.request_id = status.ok() ? response->message.request_id()
                        : prepared.header.request_id().empty()
                            ? request.header.request_id()
                            : prepared.header.request_id();
    return status;
  }

  // Calls a method whose messages are small.
  Status Ask(const char* method, const google::protobuf::MessageLite& question,
             google::protobuf::MessageLite* answer,
             const CallOptions& call_options) {
    int attempts = 0;
    return Try(
        call_options,
        [&](Attempt* attempt) {
          return CallUnary(endpoint_, method, question, attempt, answer);
        },
        &attempts);
  }

  Status Allocate(size_t bytes, Access access, SharedBuffer* buffer) {
    std::shared_ptr<Region> region;
    Status status = registry_->Allocate(bytes, access, &region);
    if (status.ok()) *buffer = SharedBuffer(std::move(region));
    return status;
  }

 private:
  Status Try(const CallOptions& call_options,
             const std::function<Outcome(Attempt*)>& once, int* attempts) {
    if (!options_status_.ok()) return options_status_;
    const auto timeout = call_options.timeout.value_or(options_.timeout);
    if (timeout.count() <= 0) {
      return InvalidArgument({{"call_options.timeout", "must be above 0"}});
    }
    const auto deadline =
        steady_clock::now() + std::min(timeout, kLongestTimeout);
    return Retry(
        options_.max_attempts, deadline, call_options.stop,
        [&] {
          Attempt attempt(deadline, call_options.stop);
          Status status = AddToken(options_, attempt.context());
          return status.ok() ? once(&attempt)
                             : Outcome{.status = std::move(status)};
        },
        attempts);
  }

  Outcome CorrectAndTell(const PreparedRequest& request,
                         const CallOptions& call_options, Attempt* attempt,
                         Response* response) {
    const Progress& progress = call_options.progress;
    if (progress != nullptr) progress(0, request.input_bytes);
    Outcome outcome = CorrectOnce(request, call_options, attempt, response);
    // The server counts pooled memory in its budget: without it the next
    // attempt, of this client or another, may find room.
    if (outcome.status.code == StatusCode::kResourceExhausted) {
      registry_->Trim();
    }
    if (progress != nullptr && outcome.status.ok()) {
      progress(request.input_bytes, request.input_bytes);
    }
    return outcome;
  }

  Outcome CorrectOnce(const PreparedRequest& request,
                      const CallOptions& call_options, Attempt* attempt,
                      Response* response) {
    Transport transport = call_options.transport.value_or(options_.transport);
    const bool automatic = transport == Transport::kAuto;
    if (automatic) transport = Choose(request);
    if (transport == Transport::kSharedMemory) {
      response->transport = transport;
      SharedMemoryCall call(registry_.get(), request);
      Status shared = Share(*attempt, call_options, &call);
      if (shared.ok()) return call.Run(endpoint_, attempt, response);
      if (!automatic) return {.status = std::move(shared)};
      transport = Transport::kStream;
    }
    response->transport = transport;
    return transport == Transport::kUnary
               ? CorrectUnary(endpoint_, request, attempt, response)
               : CorrectStream(endpoint_, request, options_.chunk_bytes,
                               call_options.progress, attempt, response);
  }

  Transport Choose(const PreparedRequest& request) const {
    if (request.input_bytes < options_.stream_from_bytes) {
      return Transport::kUnary;
    }
    return is_unix_socket_ && !request.outputs.empty()
               ? Transport::kSharedMemory
               : Transport::kStream;
  }

  Status Share(const Attempt& attempt, const CallOptions& call_options,
               SharedMemoryCall* call) {
    std::string path;
    Status status = FindSocket(attempt.deadline(), call_options.stop, &path);
    if (!status.ok()) return status;
    if (path.empty()) {
      return {.code = StatusCode::kFailedPrecondition,
              .message = "the server offers no shared memory to this target"};
    }
    status = call->Share(path);
    if (status.code == StatusCode::kUnavailable) {
      // Another server may have taken over the address.
      const std::lock_guard lock(mutex_);
      socket_path_.reset();
    }
    return status;
  }

  // Finds the path of the socket that registers memory; an empty path if the
  // server has none.
  Status FindSocket(steady_clock::time_point deadline,
                    const std::stop_token& stop, std::string* path) {
    {
      const std::lock_guard lock(mutex_);
      if (socket_path_) {
        *path = *socket_path_;
        return {};
      }
    }
    v1::GetServerInfoResponse info;
    Outcome outcome;
    {
      Attempt asking(deadline, stop);
      Status status = AddToken(options_, asking.context());
      if (!status.ok()) return status;
      outcome = CallUnary(endpoint_, "GetServerInfo",
                          v1::GetServerInfoRequest(), &asking, &info);
    }
    if (!outcome.status.ok()) return outcome.status;
    *path = info.shared_memory_socket();
    const std::lock_guard lock(mutex_);
    socket_path_ = *path;
    return {};
  }

  const Options options_;
  const Status options_status_;
  const bool is_unix_socket_;
  const Endpoint endpoint_;
  const std::shared_ptr<Registry> registry_;
  std::mutex mutex_;
  // Guarded by mutex_. Absent before the first question.
  std::optional<std::string> socket_path_;
};

Client::Client(const std::string& target, const Options& options)
    : implementation_(std::make_unique<Implementation>(target, options)) {}

Client::~Client() = default;

Status Client::Correct(const Request& request, Response* response,
                       const CallOptions& call_options) {
  return implementation_->Correct(request, response, call_options);
}

Status Client::GetServerInfo(v1::GetServerInfoResponse* info,
                             const CallOptions& call_options) {
  return implementation_->Ask("GetServerInfo", v1::GetServerInfoRequest(), info,
                              call_options);
}

Status Client::ListMethods(v1::ListMethodsResponse* methods,
                           const CallOptions& call_options) {
  return implementation_->Ask("ListMethods", v1::ListMethodsRequest(), methods,
                              call_options);
}

Status Client::Allocate(size_t bytes, Access access, SharedBuffer* buffer) {
  return implementation_->Allocate(bytes, access, buffer);
}

}  // namespace counterweight::client
