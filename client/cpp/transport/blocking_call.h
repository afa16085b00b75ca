// Calls of gRPC's generic stub that block the calling thread.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_BLOCKING_CALL_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_BLOCKING_CALL_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace counterweight::client {

// A queue for one thread that has one operation under way.
class OneOperation {
 public:
  OneOperation() = default;
  ~OneOperation();
  OneOperation(const OneOperation&) = delete;
  OneOperation& operator=(const OneOperation&) = delete;

  grpc::CompletionQueue* queue() { return &queue_; }
  // The operation's tag.
  void* tag() { return this; }
  // Blocks until the operation has ended; false if it failed.
  bool Wait();

 private:
  grpc::CompletionQueue queue_;
};

// Calls the method of that path, "/package.Service/Method". An OK answer has a
// message.
grpc::Status BlockingUnary(const std::shared_ptr<grpc::Channel>& channel,
                           const std::string& path,
                           grpc::ClientContext* context,
                           const grpc::ByteBuffer& request,
                           grpc::ByteBuffer* answer);

// A stream in both directions, for one thread. Methods but Finish() return
// false once the call has ended.
class BlockingStream {
 public:
  // Begins the call. `context` must outlive this object.
  BlockingStream(const std::shared_ptr<grpc::Channel>& channel,
                 const std::string& path, grpc::ClientContext* context);

  bool Write(const grpc::ByteBuffer& message);
  bool WritesDone();
  bool Read(grpc::ByteBuffer* message);
  // Blocks until the status is there, for which every message must have been
  // read, or the call cancelled. Only once.
  grpc::Status Finish();

 private:
  OneOperation operation_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_BLOCKING_CALL_H_
