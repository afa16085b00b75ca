// Locations of tensors. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_MEMORY_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "counterweight/v1/tensor.pb.h"
#include "kernels/corrector.h"
#include "server/engine/region.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Bytes of a tensor in a block: rounded up to a cache line.
constexpr int64_t Aligned(int64_t bytes) {
  constexpr int64_t kLine = 64;
  return (bytes + kLine - 1) / kLine * kLine;
}

// Requirements on a range of shared memory.
struct RangeNeed {
  RegionAccess access;
  int64_t bytes;
  int64_t element_size;
};

// A range of shared memory.
struct SharedRange {
  std::byte* data = nullptr;  // the first byte
  // Keeps the bytes mapped.
  std::shared_ptr<const Region> region;

  // If set, the host must not access the bytes.
  std::optional<kernels::DeviceUuid> device() const {
    return region == nullptr ? std::nullopt : region->device();
  }
};

// Returns the range, or violations below `field` ("tensors[0].shared_memory").
// regions may be null. A batch is computed on one device: `device` is that of
// the earlier tensors, if any.
Result<SharedRange> FindRange(const v1::SharedMemoryRange& range,
                              const RangeNeed& need, const Regions* regions,
                              const std::optional<kernels::DeviceUuid>& device,
                              const std::string& field);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_MEMORY_H_
