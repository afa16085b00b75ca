// Shapes between proto and kernel types. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_LAYOUT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "counterweight/v1/tensor.pb.h"
#include "server/engine/codec.h"
#include "server/engine/violation.h"

namespace counterweight::server {

struct LayoutInfo {
  int64_t num_sequences = 0;
  int64_t num_positions = 0;
  int64_t padded_length = 0;
};

// True if the layout is valid; *offsets then has [num_sequences + 1] entries.
bool DecodeLayout(const v1::Layout& layout, const RequestLimits& limits,
                  std::vector<int64_t>* offsets, LayoutInfo* info,
                  Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_LAYOUT_H_
