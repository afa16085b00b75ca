#include "server/engine/stream_batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "server/engine/codec_tensors.h"
#include "server/engine/names.h"

namespace counterweight::server {

StreamBatch::StreamBatch(std::vector<StreamTensor> tensors,
                         std::span<const int64_t> offsets)
    : tensors_(std::move(tensors)),
      received_(tensors_.size(), 0),
      offsets_(offsets) {
  for (const StreamTensor& tensor : tensors_) missing_bytes_ += tensor.bytes;
}

Violations StreamBatch::Take(const wire::Chunk& chunk) {
  if (chunk.tensor >= tensors_.size()) {
    return {{"chunk.tensor", Concat("is ", chunk.tensor, "; the header has ",
                                    tensors_.size(), " tensors")}};
  }
  const size_t at = chunk.tensor;
  const size_t size = chunk.data.left();
  const StreamTensor& tensor = tensors_[at];
  int64_t& received = received_[at];
  if (chunk.offset != static_cast<uint64_t>(received)) {
    return {{"chunk.offset",
             Concat("is ", chunk.offset, "; ", received, " bytes of tensors[",
                    at, "] have come, and its chunks ascend without gaps")}};
  }
  if (size > static_cast<uint64_t>(tensor.bytes - received)) {
    return {{"chunk.data",
             Concat("has ", size, " bytes; tensors[", at, "] lacks ",
                    tensor.bytes - received, " of its ", tensor.bytes)}};
  }
  std::byte* const to = tensor.data + received;
  wire::WireReader data = chunk.data;
  data.Copy(size, to);
  if (tensor.is_mask) {
    const auto* mask = reinterpret_cast<const uint8_t*>(to);
    const int64_t bad = FirstNonBoolean({mask, size});
    if (bad >= 0) {
      return {NonBoolean(Concat("tensors[", at, "].data"), received + bad,
                         mask[bad])};
    }
  }
  received += static_cast<int64_t>(size);
  received_bytes_ += static_cast<int64_t>(size);
  missing_bytes_ -= static_cast<int64_t>(size);
  int64_t positions = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    positions = std::min(positions, received_[i] / tensors_[i].element_size);
  }
  while (rows_ + 1 < static_cast<int64_t>(offsets_.size()) &&
         offsets_[static_cast<size_t>(rows_) + 1] <= positions) {
    ++rows_;
  }
  return {};
}

bool StreamBatch::has_mask() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].is_mask && received_[i] == tensors_[i].bytes) return true;
  }
  return false;
}

Violation StreamBatch::Missing() const {
  size_t i = 0;
  while (received_[i] == tensors_[i].bytes) ++i;
  return {Concat("tensors[", i, "].data"),
          Concat("the stream ended after ", received_[i], " of ",
                 tensors_[i].bytes, " bytes")};
}

}  // namespace counterweight::server
