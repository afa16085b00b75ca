// One Correct request, from bytes to bytes.
#ifndef COUNTERWEIGHT_SERVER_CALL_CORRECT_CALL_H_
#define COUNTERWEIGHT_SERVER_CALL_CORRECT_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "grpcpp/support/byte_buffer.h"
#include "server/call/correction.h"
#include "server/call/entry.h"
#include "server/call/service_context.h"
#include "server/call/unary_call.h"

namespace counterweight::server {

// Admission, queue, parsing, decoding, computing, encoding; then metrics, log
// and answer.
class CorrectCall : public std::enable_shared_from_this<CorrectCall> {
 public:
  // Runs a call whose message, *request, has come to its end, most of it on the
  // executor. Takes *request.
  static void Start(const ServiceContext* service,
                    std::shared_ptr<UnaryCall> call, grpc::ByteBuffer* request,
                    std::string request_id);

 private:
  enum class Stage : uint8_t { kDecode, kCompute, kEncode, kDone };

  CorrectCall(const ServiceContext* service, std::shared_ptr<UnaryCall> call,
              grpc::ByteBuffer* request, std::string request_id);

  void Decided(Admission::Verdict verdict, std::shared_ptr<Share> share);
  // On the executor: stage by stage, and between two of them tasks of other
  // peers have their turn. A stage returns early with what the client is told.
  void Run();
  grpc::Status RunStage();
  grpc::Status DecodeRequest();
  // Room for what only the decoded request tells.
  grpc::Status ReserveRest();
  // Copies a mask in shared memory, and checks the copy.
  grpc::Status CopyMask();
  // A device's, as the driver counts; -1 if the server does not use it.
  int IndexOf(const kernels::DeviceUuid& uuid) const;
  grpc::Status Compute();
  grpc::Status EncodeResponse();
  // Logs, counts and sends.
  void Finish(const grpc::Status& status);

  const ServiceContext& service_;
  const std::shared_ptr<UnaryCall> call_;
  grpc::ByteBuffer request_;  // until it is parsed
  Correction correction_;
  Entry entry_;
  std::shared_ptr<Share> share_;
  Stage stage_ = Stage::kDecode;
  std::shared_ptr<std::byte> mask_;  // a copy of a shared one
  kernels::CorrectResult result_;
  grpc::ByteBuffer response_bytes_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_CORRECT_CALL_H_
