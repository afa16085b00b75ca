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
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace counterweight::client {

// Where calls go.
struct Endpoint {
  std::shared_ptr<grpc::Channel> channel;
  // Full name of the service.
  std::string service;
};

// How an attempt ended.
struct Outcome {
  Status status;
  // The server had promised to work on it: trying again could compute twice.
  bool admitted = false;
  // The server asks not to be tried again (a negative pushback).
  bool retry_forbidden = false;
};

// What an attempt needs from gRPC. Destroyed only when gRPC has let go of the
// memory that was lent.
class Attempt {
 public:
  Attempt(std::chrono::steady_clock::time_point deadline,
          const std::stop_token& stop);

  std::chrono::steady_clock::time_point deadline() const { return deadline_; }
  grpc::ClientContext* context() { return &context_; }
  grpc::Slice Lend(const void* data, size_t bytes) {
    return memory_.Lend(data, bytes);
  }
  // Reads the details and the pushback. REQUIRES: the call has ended.
  Outcome End(const grpc::Status& status) const;

 private:
  const std::chrono::steady_clock::time_point deadline_;
  // The order matters: a context holds what was not sent.
  BorrowedMemory memory_;
  grpc::ClientContext context_;
  std::stop_callback<std::function<void()>> on_stop_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_ATTEMPT_H_
