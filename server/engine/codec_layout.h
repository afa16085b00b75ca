// Decodes shapes. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_LAYOUT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "counterweight/v1/tensor.pb.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Limits of a request; all inclusive.
struct RequestLimits {
  int64_t max_tokens = int64_t{64} << 20;
  int64_t max_sequences = int64_t{1} << 20;
};

struct Layout {
  int64_t num_sequences = 0;
  int64_t num_positions = 0;
  int64_t padded_length = 0;
  // [num_sequences + 1]; see kernels::Batch::offsets.
  std::vector<int64_t> offsets;
};

// The result is empty if the layout is invalid.
Result<Layout> ReadLayout(const v1::Layout& layout,
                          const RequestLimits& limits);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_LAYOUT_H_
