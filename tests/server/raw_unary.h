// A unary call step by step, like a stalling client's.
#ifndef COUNTERWEIGHT_TESTS_SERVER_RAW_UNARY_H_
#define COUNTERWEIGHT_TESTS_SERVER_RAW_UNARY_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"

namespace counterweight::server {

// An RPC as a stream: headers go at once, the request when the test sends it,
// and the answer is read when the test reads it.
class RawUnary {
 public:
  explicit RawUnary(
      const std::shared_ptr<grpc::Channel>& channel,
      const std::string& path = "/counterweight.v1.CorrectionService/Correct");
  // Cancels an unfinished call.
  ~RawUnary();

  grpc::ClientContext& context() { return context_; }
  // Sends the request, and ends the client's side. False if the call has ended.
  bool Send(const std::string& request);
  // Ends the client's side without a request.
  void CloseWriting();
  // Reads the answer, if there is one, and ends the call.
  grpc::Status Finish();

 private:
  // Waits for the one operation under way.
  bool Wait();

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool is_finished_ = false;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_RAW_UNARY_H_
