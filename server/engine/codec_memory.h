// Where tensors lie. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_MEMORY_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "counterweight/v1/tensor.pb.h"
#include "server/engine/codec.h"
#include "server/engine/region.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Bytes rounded up to a cache line: what a tensor takes of a block.
constexpr int64_t Aligned(int64_t bytes) {
  constexpr int64_t kLine = 64;
  return (bytes + kLine - 1) / kLine * kLine;
}

// What a range of shared memory has to be.
struct RangeNeed {
  RegionAccess access;
  int64_t bytes;
  int64_t element_size;
};

// What a range of shared memory is.
struct SharedRange {
  std::byte* data = nullptr;  // the first byte
  bool is_on_device = false;  // not to be touched by the host
};

// The range, its region kept by *decoded; or null, and violations below `field`
// ("tensors[0].shared_memory"). Tensors on two devices are one: a batch is
// computed on one of them. regions may be null.
SharedRange FindRange(const v1::SharedMemoryRange& range, const RangeNeed& need,
                      const Regions* regions, const std::string& field,
                      DecodedRequest* decoded, Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_MEMORY_H_
