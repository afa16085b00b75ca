// The tensors of one stream, filled chunk by chunk.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_STREAM_BATCH_H_
#define COUNTERWEIGHT_SERVER_ENGINE_STREAM_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/wire/chunk.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// The destination of one tensor of the header.
struct StreamTensor {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  // Bytes of one position; `bytes` is a multiple of it.
  int64_t element_size = 1;
  // Each byte must be 0 or 1.
  bool is_mask = false;
};

// Tracks the data that has arrived. No chunk writes outside its tensor.
class StreamBatch {
 public:
  StreamBatch() = default;
  // offsets: [num_sequences + 1] as kernels::Batch::offsets; must outlive this.
  StreamBatch(std::vector<StreamTensor> tensors,
              std::span<const int64_t> offsets);

  // Copies a chunk's data to its place, or returns its violations: an unknown
  // tensor, a gap or an overlap, too many bytes, a mask that is not one.
  Violations Take(const wire::Chunk& chunk);

  // Every tensor has all of its bytes.
  bool IsWhole() const { return missing_bytes_ == 0; }
  int64_t received_bytes() const { return received_bytes_; }
  int64_t missing_bytes() const { return missing_bytes_; }
  // Rows [0, rows()) of every tensor are there.
  int64_t rows() const { return rows_; }
  bool has_mask() const;
  // Names the first tensor that is not whole. REQUIRES: !IsWhole().
  Violation Missing() const;

 private:
  std::vector<StreamTensor> tensors_;
  std::vector<int64_t> received_;
  std::span<const int64_t> offsets_;
  int64_t received_bytes_ = 0;
  int64_t missing_bytes_ = 0;
  int64_t rows_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_STREAM_BATCH_H_
