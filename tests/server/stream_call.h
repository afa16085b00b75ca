// CorrectStream by generated stubs.
#ifndef COUNTERWEIGHT_TESTS_SERVER_STREAM_CALL_H_
#define COUNTERWEIGHT_TESTS_SERVER_STREAM_CALL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.grpc.pb.h"
#include "grpcpp/channel.h"

namespace counterweight::server {

// One call, step by step. Steps after the stream's end do nothing.
class StreamCall {
 public:
  explicit StreamCall(const std::shared_ptr<grpc::Channel>& channel);
  // Cancels an unfinished call.
  ~StreamCall();

  grpc::ClientContext& context() { return context_; }

  // Begins without a frame.
  void Open() { Begin(); }
  // Begins with `request` without its tensors' data.
  void SendHeader(const v1::CorrectRequest& request);
  // False if the stream has ended, as Send.
  bool SendChunk(uint32_t tensor, uint64_t offset, const std::string& data);
  bool Send(const v1::CorrectStreamRequest& frame);
  // All tensors of `request`, the mask first, then blocks of `chunk_bytes`
  // (0: whole tensors) of the others in turn.
  void SendTensors(const v1::CorrectRequest& request, size_t chunk_bytes = 0);
  void CloseWriting();

  // Reads the next frame; false at the end.
  bool Read(v1::CorrectStreamResponse* frame);
  // True if the next frame is the admission.
  bool IsAdmitted();
  // Returns result and chunks as one answer. Fails the test if frames are out
  // of order.
  v1::CorrectResponse ReadAnswer();
  const v1::StreamSummary& summary() const { return summary_; }
  grpc::Status Finish();

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::CorrectionService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::CorrectStreamRequest,
                                           v1::CorrectStreamResponse>>
      stream_;
  v1::StreamSummary summary_;
  bool is_finished_ = false;

  void Begin();
};

// Makes a whole call.
grpc::Status Stream(const std::shared_ptr<grpc::Channel>& channel,
                    const v1::CorrectRequest& request, size_t chunk_bytes,
                    v1::CorrectResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_STREAM_CALL_H_
