#include "tests/fuzz/stream_client.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "tests/fuzz/input.h"

namespace counterweight::fuzz {
namespace {

using Buffer = grpc::ByteBuffer;

// Longer than any step of a call takes, shorter than --stream_timeout.
constexpr std::chrono::seconds kPatience{8};

Buffer ToBuffer(const std::string& message) {
  const grpc::Slice slice(message);
  return Buffer(&slice, 1);
}

v1::CorrectStreamResponse Parse(const Buffer& buffer) {
  std::vector<grpc::Slice> slices;
  Expect(buffer.Dump(&slices).ok(), "an answer has bytes");
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::CorrectStreamResponse message;
  Expect(message.ParseFromString(bytes), "an answer parses");
  return message;
}

class Client final : public grpc::ClientBidiReactor<Buffer, Buffer> {
 public:
  Client(const std::shared_ptr<grpc::Channel>& channel, const StreamPlan& plan)
      : plan_(plan) {
    grpc::GenericStub(channel).PrepareBidiStreamingCall(
        &context_, "/counterweight.v1.CorrectionService/CorrectStream", {},
        this);
    StartRead(&incoming_);
    WriteNext();
    StartCall();
  }

  void OnWriteDone(bool ok) override {
    if (ok) WriteNext();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    answer_.messages.push_back(Parse(incoming_));
    if (answer_.messages.size() == plan_.cancel_at_read) context_.TryCancel();
    StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    answer_.status = status;
    is_done_ = true;
    changed_.notify_all();
  }

  StreamAnswer Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    Expect(changed_.wait_for(lock, kPatience, [this] { return is_done_; }),
           "a call ends");
    return std::move(answer_);
  }

 private:
  void WriteNext() {
    if (next_ < plan_.messages.size()) {
      outgoing_ = ToBuffer(plan_.messages[next_++]);
      return StartWrite(&outgoing_);
    }
    if (plan_.end == StreamPlan::End::kHalfClose) StartWritesDone();
    if (plan_.end == StreamPlan::End::kCancel) context_.TryCancel();
  }

  const StreamPlan& plan_;
  grpc::ClientContext context_;
  Buffer incoming_;
  Buffer outgoing_;
  size_t next_ = 0;  // of plan_.messages
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  StreamAnswer answer_;
};

}  // namespace

StreamAnswer RunStream(const std::shared_ptr<grpc::Channel>& channel,
                       const StreamPlan& plan) {
  Client client(channel, plan);
  return client.Wait();
}

}  // namespace counterweight::fuzz
