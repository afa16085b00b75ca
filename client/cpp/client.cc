#include "client/cpp/client.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "client/cpp/shared_memory/hold.h"
#include "client/cpp/shared_memory/registry.h"
#include "client/cpp/shared_memory/shared_memory_call.h"
#include "client/cpp/submissions.h"
#include "client/cpp/transport/access.h"
#include "client/cpp/transport/attempt.h"
#include "client/cpp/transport/bounds.h"
#include "client/cpp/transport/host_copy.h"
#include "client/cpp/transport/identity.h"
#include "client/cpp/transport/prepared_request.h"
#include "client/cpp/transport/retry.h"
#include "client/cpp/transport/stream_call.h"
#include "client/cpp/transport/unary_call.h"
#include "client/cpp/warnings.h"

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
        endpoint_(options_status_.ok() ? Connect(target, options)
                                       : Connect("localhost:1", Options())),
        registry_(std::make_shared<Registry>(options.shared_memory_pool_bytes)),
        warnings_(options.on_warning),
        submissions_(std::max(1, options.max_in_flight)) {}

  Status Correct(const Request& request, Response* response,
                 const CallOptions& call_options) {
    PreparedRequest prepared;
    Status status = Prepare(request, &prepared);
    if (status.ok()) {
      status = Try(
          call_options,
          [&](const Bounds& bounds) {
            return CorrectAndTell(prepared, call_options, bounds, response);
          },
          &response->attempts);
    }
    status.request_id = status.ok() ? response->message.request_id()
                        : prepared.header.request_id().empty()
                            ? request.header.request_id()
                            : prepared.header.request_id();
    return status;
  }

  // Calls a method with small messages.
  Status Ask(const char* method, const google::protobuf::MessageLite& question,
             google::protobuf::MessageLite* answer,
             const CallOptions& call_options) {
    int attempts = 0;
    return Try(
        call_options,
        [&](const Bounds& bounds) {
          return Send(bounds, [&](Attempt* attempt) {
            return CallUnary(endpoint_, method, question, attempt, answer);
          });
        },
        &attempts);
  }

  void CompareVersions(const v1::GetServerInfoResponse& info) {
    warnings_.CompareVersions(info.version());
  }

  std::future<Status> Submit(Request request, Response* response,
                             CallOptions call_options) {
    return submissions_.Run([this, request = std::move(request), response,
                             call_options = std::move(call_options)] {
      return Correct(request, response, call_options);
    });
  }

  void Close() { closed_.request_stop(); }

  Status Allocate(size_t bytes, Access access, SharedBuffer* buffer) {
    std::shared_ptr<Region> region;
    Status status = registry_->Allocate(bytes, access, &region);
    if (status.ok()) *buffer = SharedBuffer(std::move(region));
    return status;
  }

  Status Hold(const void* data, DeviceHold* hold) {
    return HoldAllocation(registry_, data, hold);
  }

 private:
  Status Try(const CallOptions& call_options,
             const std::function<Outcome(const Bounds&)>& once, int* attempts) {
    if (!options_status_.ok()) return options_status_;
    const auto timeout = call_options.timeout.value_or(options_.timeout);
    if (timeout.count() <= 0) {
      return InvalidArgument({{"call_options.timeout", "must be above 0"}});
    }
    std::stop_source ended;
    const auto end = [&ended] { ended.request_stop(); };
    const std::stop_callback on_stop(call_options.stop, end);
    const std::stop_callback on_close(closed_.get_token(), end);
    const Bounds bounds = {
        steady_clock::now() + std::min(timeout, kLongestTimeout),
        ended.get_token()};
    Status status = Retry(
        options_.max_attempts, bounds.deadline, bounds.stop,
        [&] { return once(bounds); }, attempts);
    if (status.code == StatusCode::kCancelled && closed_.stop_requested()) {
      status.message = "the client is closed";
    }
    return status;
  }

  // Sends one RPC.
  Outcome Send(const Bounds& bounds,
               const std::function<Outcome(Attempt*)>& rpc) {
    Attempt attempt(bounds.deadline, bounds.stop, endpoint_.connections);
    attempt.context()->AddMetadata(kClientKey, id_);
    Status status = AddToken(options_, attempt.context());
    return status.ok() ? rpc(&attempt) : Outcome{.status = std::move(status)};
  }

  Outcome CorrectAndTell(const PreparedRequest& request,
                         const CallOptions& call_options, const Bounds& bounds,
                         Response* response) {
    const Progress& progress = call_options.progress;
    if (progress != nullptr) progress(0, request.input_bytes);
    Outcome outcome = CorrectOnce(request, call_options, bounds, response);
    // The server counts pooled memory in its budget: without it the next
    // attempt, of this client or another, may find room.
    if (outcome.status.code == StatusCode::kResourceExhausted) {
      registry_->Trim();
    }
    // The next server behind the address may be another one.
    if (outcome.status.code == StatusCode::kUnavailable ||
        outcome.status.code == StatusCode::kCancelled) {
      Forget();
    }
    if (progress != nullptr && outcome.status.ok()) {
      progress(request.input_bytes, request.input_bytes);
    }
    return outcome;
  }

  Outcome CorrectOnce(const PreparedRequest& request,
                      const CallOptions& call_options, const Bounds& bounds,
                      Response* response) {
    const Transport told = call_options.transport.value_or(options_.transport);
    const bool automatic = told == Transport::kAuto;
    Capabilities known;
    if (DependsOnServer(told, request)) {
      Outcome outcome = Learn(bounds, &known);
      if (!outcome.status.ok()) return outcome;
    }
    Transport transport = automatic ? Choose(request, known) : told;
    const bool on_device = request.device.driver != nullptr;
    if (transport == Transport::kSharedMemory &&
        (!on_device || !known.devices.empty())) {
      response->transport = transport;
      Status unusable;
      Outcome outcome =
          CorrectInPlace(request, known, bounds, response, &unusable);
      if (unusable.ok()) return outcome;
      if (on_device) {
        // Without a server at the socket the next call has the better error.
        if (unusable.code != StatusCode::kUnavailable) {
          warnings_.TellOfCopies(unusable.message);
        }
      } else if (!automatic) {
        return {.status = std::move(unusable)};
      }
      transport = known.stream ? Transport::kStream : Transport::kUnary;
    }
    if (on_device) {
      return CorrectByHost(request, call_options, bounds, response);
    }
    if (transport == Transport::kStream) {
      response->transport = transport;
      Outcome outcome = Send(bounds, [&](Attempt* attempt) {
        return CorrectStream(endpoint_, request, ChunkBytes(known),
                             call_options.progress, attempt, response);
      });
      if (!automatic || outcome.status.code != StatusCode::kUnimplemented) {
        return outcome;
      }
      // An older server behind the same address.
      const std::lock_guard lock(mutex_);
      if (capabilities_) capabilities_->stream = false;
    }
    response->transport = Transport::kUnary;
    return Send(bounds, [&](Attempt* attempt) {
      return CorrectUnary(endpoint_, request, attempt, response);
    });
  }

  // Corrects a batch with device memory that is not shared.
  Outcome CorrectByHost(const PreparedRequest& request,
                        const CallOptions& call_options, const Bounds& bounds,
                        Response* response) {
    HostCopy copy(request);
    Status status = copy.Make();
    if (!status.ok()) return {.status = std::move(status)};
    Outcome outcome =
        CorrectOnce(copy.request(), call_options, bounds, response);
    if (outcome.status.ok()) outcome.status = copy.Return(response);
    return outcome;
  }

  // True if the choice of the transport or of its chunks needs GetServerInfo.
  bool DependsOnServer(Transport told, const PreparedRequest& request) const {
    switch (told) {
      case Transport::kAuto:
        return request.input_bytes >= options_.stream_from_bytes;
      case Transport::kUnary:
        return false;
      case Transport::kStream:
        // The server's own preference needs no limit.
        return options_.chunk_bytes > 0;
      case Transport::kSharedMemory:
        return true;
    }
    return false;
  }

  Transport Choose(const PreparedRequest& request,
                   const Capabilities& known) const {
    if (request.input_bytes < options_.stream_from_bytes) {
      return Transport::kUnary;
    }
    if (is_unix_socket_ && !known.socket.empty()) {
      return Transport::kSharedMemory;
    }
    return known.stream ? Transport::kStream : Transport::kUnary;
  }

  size_t ChunkBytes(const Capabilities& known) const {
    if (options_.chunk_bytes == 0 || known.max_chunk_bytes == 0) {
      return options_.chunk_bytes;
    }
    return std::min<uint64_t>(options_.chunk_bytes, known.max_chunk_bytes);
  }

  // Corrects a batch in shared memory. `*unusable` is the reason if that is
  // impossible; then nothing was computed.
  Outcome CorrectInPlace(const PreparedRequest& request,
                         const Capabilities& known, const Bounds& bounds,
                         Response* response, Status* unusable) {
    if (known.socket.empty()) {
      *unusable = {
          .code = StatusCode::kFailedPrecondition,
          .message = "the server offers no shared memory to this target"};
      return {};
    }
    for (bool renewed = false;; renewed = true) {
      SharedMemoryCall call(registry_.get(), request);
      *unusable = call.Lend(known.socket, known.devices, bounds);
      if (unusable->ok()) *unusable = call.Share(known.socket, bounds);
      if (call.device_refused()) ForgetDevices();
      if (EndsCall(*unusable)) {
        return {.status = std::exchange(*unusable, Status())};
      }
      if (!unusable->ok()) {
        // Another server may have taken over the address.
        if (unusable->code == StatusCode::kUnavailable) Forget();
        return {};
      }
      Outcome outcome = Send(bounds, [&](Attempt* attempt) {
        return call.Run(endpoint_, attempt, response);
      });
      if (!IsAboutSharedMemory(outcome.status)) return outcome;
      if (renewed) {
        *unusable = {.code = StatusCode::kFailedPrecondition,
                     .message =
                         "the server does not know memory that it has "
                         "registered: " +
                         outcome.status.message};
        return {};
      }
      // The server restarted, or lost the connection.
      registry_->Renew(call.generation());
    }
  }

  // Requests the server's capabilities unless they are known.
  Outcome Learn(const Bounds& bounds, Capabilities* known) {
    {
      const std::lock_guard lock(mutex_);
      if (capabilities_) {
        *known = *capabilities_;
        return {};
      }
    }
    v1::GetServerInfoResponse info;
    Outcome outcome = Send(bounds, [&](Attempt* attempt) {
      return CallUnary(endpoint_, "GetServerInfo", v1::GetServerInfoRequest(),
                       attempt, &info);
    });
    // A server without the method has no optional features.
    const bool is_old = outcome.status.code == StatusCode::kUnimplemented;
    if (!outcome.status.ok() && !is_old) return outcome;
    CompareVersions(info);
    *known = ReadCapabilities(info);
    const std::lock_guard lock(mutex_);
    capabilities_ = *known;
    return {};
  }

  void Forget() {
    const std::lock_guard lock(mutex_);
    capabilities_.reset();
  }

  // A server that refuses one allocation opens no other either.
  void ForgetDevices() {
    const std::lock_guard lock(mutex_);
    if (capabilities_) capabilities_->devices.clear();
  }

  const Options options_;
  const Status options_status_;
  const bool is_unix_socket_;
  const Endpoint endpoint_;
  const std::string id_ = NewId();
  const std::shared_ptr<Registry> registry_;
  std::mutex mutex_;
  // Guarded by mutex_. Absent before the first question.
  std::optional<Capabilities> capabilities_;
  Warnings warnings_;
  std::stop_source closed_;
  // The last member: its destructor waits for calls that use the others.
  Submissions submissions_;
};

Client::Client(const std::string& target, const Options& options)
    : implementation_(std::make_unique<Implementation>(target, options)) {}

Client::~Client() { Close(); }

void Client::Close() { implementation_->Close(); }

std::future<Status> Client::Submit(Request request, Response* response,
                                   CallOptions call_options) {
  return implementation_->Submit(std::move(request), response,
                                 std::move(call_options));
}

Status Client::Correct(const Request& request, Response* response,
                       const CallOptions& call_options) {
  return implementation_->Correct(request, response, call_options);
}

Status Client::GetServerInfo(v1::GetServerInfoResponse* info,
                             const CallOptions& call_options) {
  Status status = implementation_->Ask(
      "GetServerInfo", v1::GetServerInfoRequest(), info, call_options);
  if (status.ok()) implementation_->CompareVersions(*info);
  return status;
}

Status Client::ListMethods(v1::ListMethodsResponse* methods,
                           const CallOptions& call_options) {
  return implementation_->Ask("ListMethods", v1::ListMethodsRequest(), methods,
                              call_options);
}

Status Client::MergeSums(const v1::MergeSumsRequest& request,
                         v1::MergeSumsResponse* response,
                         const CallOptions& call_options) {
  Status status =
      implementation_->Ask("MergeSums", request, response, call_options);
  if (!status.ok()) return status;
  const char* const missing = !response->has_sums() ? "sums"
                              : request.has_method() && !response->has_answer()
                                  ? "metrics"
                                  : nullptr;
  if (missing == nullptr) return status;
  return {.code = StatusCode::kInternal,
          .message = std::string("the server's answer has no ") + missing};
}

Status Client::Diagnose(const v1::DiagnoseRequest& request,
                        v1::DiagnoseResponse* response,
                        const CallOptions& call_options) {
  return implementation_->Ask("Diagnose", request, response, call_options);
}

Status Client::ReportStep(const v1::ReportStepRequest& request,
                          v1::ReportStepResponse* response,
                          const CallOptions& call_options) {
  return implementation_->Ask("ReportStep", request, response, call_options);
}

Status Client::DeclareRun(const v1::DeclareRunRequest& request,
                          v1::DeclareRunResponse* response,
                          const CallOptions& call_options) {
  return implementation_->Ask("DeclareRun", request, response, call_options);
}

Status Client::GroupAdvantages(const v1::GroupAdvantagesRequest& request,
                               v1::GroupAdvantagesResponse* response,
                               const CallOptions& call_options) {
  return implementation_->Ask("GroupAdvantages", request, response,
                              call_options);
}

Status Client::Allocate(size_t bytes, Access access, SharedBuffer* buffer) {
  return implementation_->Allocate(bytes, access, buffer);
}

Status Client::Hold(const void* data, DeviceHold* hold) {
  return implementation_->Hold(data, hold);
}

}  // namespace counterweight::client
