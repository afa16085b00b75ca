// One unary call as the server sees it: a message up, a message down.
#ifndef COUNTERWEIGHT_SERVER_CALL_UNARY_CALL_H_
#define COUNTERWEIGHT_SERVER_CALL_UNARY_CALL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call/admission_wait.h"
#include "server/call/call_clock.h"
#include "server/call/service_context.h"

namespace counterweight::server {

using RawReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// Serves a unary method as a stream of one message each way, which is the same
// on the wire. gRPC's own unary handler learns of a call when its message has
// arrived completely, and forgets it when the answer is handed over; this one
// knows it from its headers until gRPC has released the answer, and ends it if
// either takes longer than --unary_timeout. Thread-safe.
class UnaryCall final : public RawReactor,
                        public TimedCall,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  // Called once the message, *request, has arrived, on a thread of gRPC's,
  // which it must not block; it is to lead to Finish. What it does not take of
  // *request is freed when it returns: the call keeps nothing of it.
  using OnRequest = std::function<void(std::shared_ptr<UnaryCall>,
                                       grpc::ByteBuffer* request)>;
  // Called once at most, if the call ends before `on_request` is called.
  using OnEnd = std::function<void(const grpc::Status&)>;

  // The call owns itself until gRPC is done with it, and keeps `use` as long.
  static UnaryCall* Start(const AdmitContext* admit,
                          grpc::CallbackServerContext* context,
                          std::shared_ptr<void> use, OnRequest on_request,
                          OnEnd on_end);

  grpc::CallbackServerContext* context() { return context_; }

  // Called when the client leaves while the call is worked on; replaces what
  // was set before. Called at once if it has left.
  void OnLeave(std::function<void()> on_leave);

  // Sends what *response holds, and takes it, if the status is OK, and ends the
  // call. Keeps `reservation`, as the answer's, until gRPC has let go of the
  // answer. REQUIRES: called once, after on_request.
  void Finish(const grpc::Status& status, grpc::ByteBuffer* response,
              std::shared_ptr<Reservation> reservation);

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void OnTick(std::chrono::steady_clock::time_point now) override;

 private:
  enum class State : uint8_t { kReceiving, kWorking, kEnded };

  UnaryCall(const AdmitContext* admit, grpc::CallbackServerContext* context,
            std::shared_ptr<void> use, OnRequest on_request, OnEnd on_end);

  // Ends a call before its request has arrived. REQUIRES: mutex_ is not held.
  void EndEarly(const grpc::Status& status);

  const std::shared_ptr<void> use_;
  const AdmitContext& admit_;
  grpc::CallbackServerContext* const context_;
  const OnRequest on_request_;
  const OnEnd on_end_;
  grpc::ByteBuffer request_;  // until it has arrived
  grpc::ByteBuffer response_;

  std::mutex mutex_;  // guards all below
  State state_ = State::kReceiving;
  std::chrono::steady_clock::time_point since_;  // when the state began
  bool has_request_ = false;
  bool has_left_ = false;
  bool is_done_ = false;  // gRPC may have freed the context
  std::function<void()> on_leave_;
  std::shared_ptr<Reservation> reservation_;
  std::shared_ptr<void> place_;  // among arrivals
  std::shared_ptr<void> watch_;
  std::shared_ptr<UnaryCall> self_;  // until OnDone
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_UNARY_CALL_H_
