// One batch inside the echo server: the addresses of its bytes and of the
// answer's.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_ECHO_BATCH_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_ECHO_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "grpcpp/support/slice.h"
#include "proto/wire/wire_reader.h"

namespace counterweight::bench {

// Buffers that batches reuse, so that pages are touched once. Thread-safe.
class BufferPool {
 public:
  struct Buffer {
    std::unique_ptr<std::byte[]> data;
    size_t bytes = 0;
  };
  // The last owner returns the buffer to the pool and may outlive it. Null if
  // there is no memory.
  std::shared_ptr<Buffer> Take(size_t bytes);

 private:
  struct State {
    std::mutex mutex;
    std::vector<Buffer> idle;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class EchoBatch {
 public:
  // Begins with a request without its tensors' data. Returns a sentence if the
  // request is invalid.
  std::string Begin(const v1::CorrectRequest& header, BufferPool* pool);

  // Copies the next bytes of a tensor to their address; false if they exceed
  // it.
  bool Take(uint32_t tensor, uint64_t offset, wire::WireReader data);
  // True when all bytes have arrived.
  bool whole() const { return left_ == 0; }

  // The answer, its tensors without data.
  const v1::CorrectResponse& answer() const { return answer_; }
  size_t output_bytes(int tensor) const {
    return output_bytes_[static_cast<size_t>(tensor)];
  }
  // `bytes` bytes of the answer; the slice keeps them alive.
  grpc::Slice Output(size_t bytes) const;

 private:
  std::vector<size_t> input_bytes_;
  std::vector<size_t> input_begins_;
  std::vector<size_t> output_bytes_;
  size_t left_ = 0;
  std::shared_ptr<BufferPool::Buffer> buffer_;
  v1::CorrectResponse answer_;
};

}  // namespace counterweight::bench

#endif  // COUNTERWEIGHT_CLIENT_CPP_BENCH_ECHO_BATCH_H_
