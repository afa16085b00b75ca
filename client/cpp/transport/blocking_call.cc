#include "client/cpp/transport/blocking_call.h"

namespace counterweight::client {

OneOperation::~OneOperation() {
  queue_.Shutdown();
  while (Wait()) {
  }
}

bool OneOperation::Wait() {
  void* tag = nullptr;
  bool is_done = false;
  return queue_.Next(&tag, &is_done) && is_done;
}

grpc::Status BlockingUnary(const std::shared_ptr<grpc::Channel>& channel,
                           const std::string& path,
                           grpc::ClientContext* context,
                           const grpc::ByteBuffer& request,
                           grpc::ByteBuffer* answer) {
  OneOperation operation;
  const auto call = grpc::GenericStub(channel).PrepareUnaryCall(
      context, path, request, operation.queue());
  call->StartCall();
  grpc::Status status;
  call->Finish(answer, &status, operation.tag());
  // The status says why an operation failed.
  operation.Wait();
  if (status.ok() && !answer->Valid()) {
    return {grpc::StatusCode::UNIMPLEMENTED,
            "the server ended the call without an answer"};
  }
  return status;
}

BlockingStream::BlockingStream(const std::shared_ptr<grpc::Channel>& channel,
                               const std::string& path,
                               grpc::ClientContext* context)
    : stream_(grpc::GenericStub(channel).PrepareCall(context, path,
                                                     operation_.queue())) {
  stream_->StartCall(operation_.tag());
  // Finish() has the status of a call that has failed.
  operation_.Wait();
}

bool BlockingStream::Write(const grpc::ByteBuffer& message) {
  stream_->Write(message, operation_.tag());
  return operation_.Wait();
}

bool BlockingStream::WritesDone() {
  stream_->WritesDone(operation_.tag());
  return operation_.Wait();
}

bool BlockingStream::Read(grpc::ByteBuffer* message) {
  stream_->Read(message, operation_.tag());
  return operation_.Wait();
}

grpc::Status BlockingStream::Finish() {
  grpc::Status status;
  stream_->Finish(&status, operation_.tag());
  operation_.Wait();
  return status;
}

}  // namespace counterweight::client
