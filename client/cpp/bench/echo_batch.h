// One batch inside the echo server: where its bytes go, and the answer's.
#ifndef COUNTERWEIGHT_CLIENT_CPP_BENCH_ECHO_BATCH_H_
#define COUNTERWEIGHT_CLIENT_CPP_BENCH_ECHO_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/cpp/transport/wire_reader.h"
#include "counterweight/v1/correction_service.pb.h"
#include "grpcpp/support/slice.h"

namespace counterweight::bench {

// Buffers that go from batch to batch, so that pages are touched once.
// Thread-safe.
class BufferPool {
 public:
  struct Buffer {
    std::unique_ptr<std::byte[]> data;
    size_t bytes = 0;
  };
  // Returns to the pool with its last owner, which may outlive the pool. Null
  // if there is no memory.
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
  // From a request without its tensors' data. A sentence if it makes no sense.
  std::string Begin(const v1::CorrectRequest& header, BufferPool* pool);

  // Copies the next bytes of a tensor to their place; false if it has no room.
  bool Take(uint32_t tensor, uint64_t offset, client::WireReader data);
  // True when all bytes came.
  bool whole() const { return left_ == 0; }

  // The answer, its tensors without data.
  const v1::CorrectResponse& answer() const { return answer_; }
  size_t output_bytes(int tensor) const {
    return output_bytes_[static_cast<size_t>(tensor)];
  }
  // `bytes` bytes of the answer, kept alive by the slice.
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
