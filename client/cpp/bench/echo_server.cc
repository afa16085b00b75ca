#include "client/cpp/bench/echo_server.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <vector>

#include "client/cpp/bench/echo_batch.h"
#include "client/cpp/transport/message.h"
#include "client/cpp/transport/stream_frame.h"
#include "client/cpp/transport/tensor_fields.h"
#include "counterweight/v1/correction_service.pb.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/wire/chunk.h"

namespace counterweight::bench {
namespace {

using grpc::ByteBuffer;

// The real server's chunk size.
constexpr size_t kChunkBytes = size_t{2} << 20;

grpc::Status Wrong(const std::string& what) {
  return {grpc::StatusCode::INVALID_ARGUMENT, "echo: " + what};
}

grpc::Slice Copied(const std::string& bytes) {
  return {bytes.data(), bytes.size()};
}

// Correct: one message up, one down.
class EchoUnary final : public grpc::ServerGenericBidiReactor {
 public:
  explicit EchoUnary(BufferPool* pool) : pool_(pool) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    std::string wrong = ok ? Answer() : "no message";
    if (wrong.empty()) {
      StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
    } else {
      Finish(Wrong(wrong));
    }
  }

  void OnDone() override { delete this; }

 private:
  std::string Answer() {
    const client::Message message(request_);
    std::string rest;
    std::vector<wire::WireReader> data;
    v1::CorrectRequest header;
    if (!client::TakeTensorData(message.reader(),
                                v1::CorrectRequest::kTensorsFieldNumber, &rest,
                                &data) ||
        !header.ParseFromString(rest)) {
      return "the bytes do not parse";
    }
    EchoBatch batch;
    std::string wrong = batch.Begin(header, pool_);
    for (size_t i = 0; i < data.size() && wrong.empty(); ++i) {
      if (!batch.Take(static_cast<uint32_t>(i), 0, data[i])) wrong = "too long";
    }
    if (!wrong.empty()) return wrong;
    v1::CorrectResponse head = batch.answer();
    head.clear_tensors();
    std::vector<grpc::Slice> slices = {Copied(head.SerializeAsString())};
    for (int i = 0; i < batch.answer().tensors_size(); ++i) {
      const v1::Tensor& tensor = batch.answer().tensors(i);
      const size_t bytes = batch.output_bytes(i);
      slices.push_back(
          Copied(client::TensorHead(v1::CorrectResponse::kTensorsFieldNumber,
                                    tensor.role(), tensor.dtype(), bytes)));
      if (bytes > 0) slices.push_back(batch.Output(bytes));
    }
    answer_ = ByteBuffer(slices.data(), slices.size());
    return "";
  }

  BufferPool* const pool_;
  ByteBuffer request_;
  ByteBuffer answer_;
};

// CorrectStream: header, admission, chunks, result, chunks, summary. Reads and
// writes do not overlap, except the admission and the first chunk.
class EchoStream final : public grpc::ServerGenericBidiReactor {
 public:
  explicit EchoStream(BufferPool* pool) : pool_(pool) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    const std::string wrong = ok ? ReadFrame() : "the stream ends early";
    if (!wrong.empty()) return Finish(Wrong(wrong));
    if (!batch_.whole()) return StartRead(&request_);
    QueueAnswer();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    if (!ok) return;
    queue_.pop_front();
    WriteNext();
  }

  void OnDone() override { delete this; }

 private:
  std::string ReadFrame() {
    const client::Message message(request_);
    client::StreamFrame frame;
    if (!client::ReadStreamFrame(message.reader(),
                                 v1::CorrectStreamRequest::kChunkFieldNumber,
                                 &frame)) {
      return "the bytes do not parse";
    }
    if (frame.field == v1::CorrectStreamRequest::kChunkFieldNumber) {
      return batch_.Take(frame.chunk.tensor, frame.chunk.offset,
                         frame.chunk.data)
                 ? ""
                 : "a chunk has no room";
    }
    v1::CorrectRequest header;
    if (!header.ParseFromString(frame.content.Rest())) {
      return "the bytes do not parse";
    }
    std::string wrong = batch_.Begin(header, pool_);
    v1::CorrectStreamResponse admission;
    admission.mutable_admission()->set_chunk_bytes(kChunkBytes);
    if (wrong.empty()) Queue({Copied(admission.SerializeAsString())});
    return wrong;
  }

  void QueueAnswer() {
    v1::CorrectStreamResponse result;
    *result.mutable_result() = batch_.answer();
    Queue({Copied(result.SerializeAsString())});
    for (int i = 0; i < batch_.answer().tensors_size(); ++i) {
      const size_t bytes = batch_.output_bytes(i);
      for (size_t offset = 0; offset < bytes; offset += kChunkBytes) {
        const size_t size = std::min(kChunkBytes, bytes - offset);
        Queue({Copied(
                   wire::ChunkHead(v1::CorrectStreamResponse::kChunkFieldNumber,
                                   static_cast<uint32_t>(i), offset, size)),
               batch_.Output(size)});
      }
    }
    v1::CorrectStreamResponse summary;
    summary.mutable_summary();
    Queue({Copied(summary.SerializeAsString())}, /*last=*/true);
  }

  void Queue(const std::vector<grpc::Slice>& slices, bool last = false) {
    const std::lock_guard lock(mutex_);
    queue_.emplace_back(slices.data(), slices.size());
    last_queued_ = last;
    if (queue_.size() == 1) WriteNext();
  }

  // REQUIRES: mutex_ is held, and no write is in progress.
  void WriteNext() {
    if (queue_.empty()) return;
    if (last_queued_ && queue_.size() == 1) {
      return StartWriteAndFinish(&queue_.front(), {}, grpc::Status::OK);
    }
    StartWrite(&queue_.front());
  }

  BufferPool* const pool_;
  ByteBuffer request_;
  EchoBatch batch_;
  std::mutex mutex_;
  // Guarded by mutex_. The front is being written.
  std::deque<ByteBuffer> queue_;
  bool last_queued_ = false;
};

// Answers UNIMPLEMENTED to every other method.
class Unknown final : public grpc::ServerGenericBidiReactor {
 public:
  Unknown() {
    Finish({grpc::StatusCode::UNIMPLEMENTED, "echo: no such method"});
  }
  void OnDone() override { delete this; }
};

class EchoService final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const std::string prefix = std::string("/") + kEchoService + "/";
    if (context->method() == prefix + "Correct") return new EchoUnary(&pool_);
    if (context->method() == prefix + "CorrectStream") {
      return new EchoStream(&pool_);
    }
    return new Unknown();
  }

  BufferPool pool_;
};

}  // namespace

int ServeEcho(const std::string& address) {
  EchoService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    std::fprintf(stderr, "counterweight-bench: --target=%s: cannot listen\n",
                 address.c_str());
    return 1;
  }
  std::string listening = address;
  if (listening.ends_with(":0")) {
    listening.replace(listening.size() - 1, 1, std::to_string(port));
  }
  std::printf("counterweight-bench echo listening on %s\n", listening.c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  return 0;
}

}  // namespace counterweight::bench
