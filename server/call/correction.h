// One request's work, whichever RPC brought it.
#ifndef COUNTERWEIGHT_SERVER_CALL_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_CALL_CORRECTION_H_

#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "google/protobuf/io/zero_copy_stream.h"
#include "grpcpp/server_context.h"
#include "server/call/service_context.h"
#include "server/engine/codec.h"
#include "server/observe/request_log.h"

namespace counterweight::server {

// A client's name for itself, the same in all of its calls.
inline constexpr char kClientKey[] = "counterweight-client";

// Decodes, judges, encodes, publishes, logs. Used by one thread at a time; but
// any may call StillWanted, and the refusals beside InvalidArgument.
class Correction {
 public:
  // `context` must outlive the calls of StillWanted.
  Correction(const ServiceContext* service, std::string_view rpc,
             grpc::CallbackServerContext* context, std::string request_id);

  v1::CorrectRequest& request() { return request_; }
  // REQUIRES: Decode was OK, and Clear was not called.
  const Decoded& decoded() const { return *decoded_; }
  v1::CorrectResponse& response() { return response_; }
  RequestRecord& record() { return record_; }
  const ServiceContext& service() const { return service_; }
  // Whose share and turn it is: the peer, and what the client calls itself in
  // the metadata kClientKey, since a machine's trainers are one peer.
  const Client& queue_client() const { return queue_client_; }
  // Shared memory is for callers on this machine.
  const Regions* regions() const;

  // From serialized bytes to request(). `has_data`: tensors bring their data.
  // Stops before protobuf builds more objects than a request can use.
  grpc::Status Parse(google::protobuf::io::ZeroCopyInputStream* input,
                     bool has_data);
  // From request() to decoded(). Asks `wanted` between steps, and stops with
  // its status if that is not OK.
  grpc::Status Decode(PayloadSource source,
                      const std::function<grpc::Status()>& wanted);
  // Memory of request() and decoded(), in bytes: what they take beside the
  // outputs and the scratch.
  int64_t ObjectBytes() const;
  // Frees request(), decoded() and response(). After Record.
  void Clear();
  // Converts the kernels' status for the client. A run is stopped only when its
  // result is no longer wanted.
  grpc::Status Judge(const kernels::CorrectResult& result);
  // All of response() but tensors and their data. Counts `encode` from `start`.
  grpc::Status Encode(const kernels::BatchSums& sums);
  // Metrics and drift of a success. After Encode.
  void Publish(const kernels::BatchSums& sums);
  // Counts and logs the end.
  void Record(const grpc::Status& status);

  // OK while the client waits for the answer.
  grpc::Status StillWanted() const;
  grpc::Status InvalidArgument(const Violations& violations);
  // The verdict as a status; OK if it is kAdmitted.
  grpc::Status Refuse(Admission::Verdict verdict);
  grpc::Status NoMemory();
  // Returns the status of `work`, or the status for its exception.
  grpc::Status Guard(const std::function<grpc::Status()>& work);

  // Ends a stage, "decode": adds the time since the end of the last one, or
  // since construction, to `seconds` of record().
  void EndStage(std::string_view stage, double RequestRecord::*seconds);

 private:
  grpc::Status InternalError(std::string_view event, std::string_view what);

  using Clock = std::chrono::steady_clock;

  const ServiceContext& service_;
  grpc::CallbackServerContext* const context_;
  Clock::time_point stage_start_ = Clock::now();
  Client queue_client_;  // its peer is what drift is counted by
  v1::CorrectRequest request_;
  std::optional<const Decoded> decoded_;
  v1::CorrectResponse response_;
  RequestRecord record_;
};

// The status for a client that is refused for lack of room.
grpc::Status ServerIsFull();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_CORRECTION_H_
