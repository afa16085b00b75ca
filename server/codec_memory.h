// Where tensors lie. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_CODEC_MEMORY_H_
#define COUNTERWEIGHT_SERVER_CODEC_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "counterweight/v1/tensor.pb.h"
#include "server/codec.h"
#include "server/shared_memory/region.h"
#include "server/violation.h"

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

// The range's first byte, its region kept by *decoded; or null, and violations
// below `field` ("tensors[0].shared_memory"). regions may be null.
std::byte* FindRange(const v1::SharedMemoryRange& range, const RangeNeed& need,
                     const Regions* regions, const std::string& field,
                     DecodedRequest* decoded, Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CODEC_MEMORY_H_
