// One Correct request, from bytes to bytes.
#ifndef COUNTERWEIGHT_SERVER_CORRECT_CALL_H_
#define COUNTERWEIGHT_SERVER_CORRECT_CALL_H_

#include <chrono>
#include <memory>
#include <string>

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/codec.h"
#include "server/request_log.h"
#include "server/service_context.h"

namespace counterweight::server {

// Admission, queue, parsing, decoding, computing, encoding; then metrics, log
// and answer.
class CorrectCall {
 public:
  // Runs the call to its end, most of it on the executor, and finishes
  // *reactor. gRPC keeps the two buffers and *context alive until then.
  static void Start(const ServiceContext* service,
                    grpc::CallbackServerContext* context,
                    grpc::ServerUnaryReactor* reactor,
                    grpc::ByteBuffer* request_bytes,
                    grpc::ByteBuffer* response_bytes, std::string request_id);

 private:
  using Clock = std::chrono::steady_clock;

  CorrectCall(const ServiceContext* service,
              grpc::CallbackServerContext* context,
              grpc::ServerUnaryReactor* reactor,
              grpc::ByteBuffer* request_bytes, grpc::ByteBuffer* response_bytes,
              std::string request_id);

  // On the executor. The stages are methods of their own; each returns early
  // with what the client is told.
  void RunAndFinish();
  grpc::Status Run();
  grpc::Status DecodeRequest();
  grpc::Status Compute(kernels::CorrectResult* result);
  grpc::Status EncodeResponse(const kernels::BatchSums& sums);

  // OK while somebody waits for the answer.
  grpc::Status StillWanted() const;
  grpc::Status InternalError(std::string_view event, std::string_view what);
  grpc::Status Refuse(grpc::StatusCode code, std::string_view message,
                      double retry_after_s);
  void Publish(const kernels::BatchSums& sums);
  // Logs, counts and sends. The reactor may be gone afterwards.
  void Finish(const grpc::Status& status);
  // Seconds since the last call, or since the request came.
  double Lap();

  const ServiceContext& service_;
  grpc::CallbackServerContext* const context_;
  grpc::ServerUnaryReactor* const reactor_;
  grpc::ByteBuffer* const request_bytes_;
  grpc::ByteBuffer* const response_bytes_;
  Admission::Ticket ticket_;
  Clock::time_point stage_start_ = Clock::now();
  std::string client_;
  v1::CorrectRequest request_;
  DecodedRequest decoded_;
  v1::CorrectResponse response_;
  RequestRecord record_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CORRECT_CALL_H_
