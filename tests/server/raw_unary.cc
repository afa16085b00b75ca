#include "tests/server/raw_unary.h"

#include <chrono>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"

namespace counterweight::server {

RawUnary::RawUnary(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& path)
    : stub_(channel) {
  // A server that never answers fails the test instead of blocking it.
  context_.set_deadline(std::chrono::system_clock::now() +
                        std::chrono::minutes(2));
  call_ = stub_.PrepareCall(&context_, path, &queue_);
  call_->StartCall(this);
  Wait();
}

RawUnary::~RawUnary() {
  if (!is_finished_) {
    context_.TryCancel();
    Finish();
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool RawUnary::Send(const std::string& request) {
  const grpc::Slice slice(request);
  const grpc::ByteBuffer message(&slice, 1);
  call_->WriteLast(message, grpc::WriteOptions(), this);
  return Wait();
}

void RawUnary::CloseWriting() {
  call_->WritesDone(this);
  Wait();
}

grpc::Status RawUnary::Finish() {
  grpc::ByteBuffer answer;
  bool has_more = true;
  while (has_more) {
    call_->Read(&answer, this);
    has_more = Wait();
  }
  grpc::Status status;
  call_->Finish(&status, this);
  Wait();
  is_finished_ = true;
  return status;
}

bool RawUnary::Wait() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

}  // namespace counterweight::server
