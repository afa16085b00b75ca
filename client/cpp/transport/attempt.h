// One attempt of a call.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ATTEMPT_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ATTEMPT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "client/cpp/status.h"
#include "client/cpp/transport/borrowed_memory.h"
#include "client/cpp/transport/connections.h"
#include "grpcpp/alarm.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace counterweight::client {

// The destination of calls.
struct Endpoint {
  std::shared_ptr<grpc::Channel> channel;
  // The channel's.
  std::shared_ptr<Connections> connections;
  // Full name of the service.
  std::string service;
};

// Result of an attempt.
struct Outcome {
  Status status;
  // The server had admitted the call: a retry could compute it twice.
  bool admitted = false;
  // The server forbids a retry by a negative pushback.
  bool retry_forbidden = false;
};

// gRPC's state of one attempt. The destructor waits until gRPC has released the
// lent memory. A connection that takes no more bytes is ended 2 s after the
// deadline or the stop, because gRPC would not end the attempt before that.
class Attempt {
 public:
  Attempt(std::chrono::steady_clock::time_point deadline,
          const std::stop_token& stop,
          std::shared_ptr<Connections> connections);

  std::chrono::steady_clock::time_point deadline() const { return deadline_; }
  grpc::ClientContext* context() { return &context_; }
  grpc::Slice Lend(const void* data, size_t bytes) {
    return memory_.Lend(data, bytes);
  }
  // Reads details and pushback. REQUIRES: the call has ended.
  Outcome End(const grpc::Status& status) const;

 private:
  void CutStuckAfter(std::chrono::steady_clock::time_point end,
                     grpc::Alarm* alarm);

  const std::chrono::steady_clock::time_point deadline_;
  const std::shared_ptr<Connections> connections_;
  // The order matters: a context holds slices of what was not sent.
  BorrowedMemory memory_;
  grpc::ClientContext context_;
  grpc::Alarm after_deadline_;
  grpc::Alarm after_stop_;
  std::stop_callback<std::function<void()>> on_stop_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ATTEMPT_H_
