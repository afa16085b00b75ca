// Where tensors lie. Part of the codec.
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
  // Keeps the bytes there.
  std::shared_ptr<const Region> region;

  // Not to be touched by the host if there is one.
  std::optional<kernels::DeviceUuid> device() const {
    return region == nullptr ? std::nullopt : region->device();
  }
};

// The range, or nothing and violations below `field`
// ("tensors[0].shared_memory"). regions may be null. A batch is computed on one
// device: `device` is that of the tensors before, if there is one.
Result<SharedRange> FindRange(const v1::SharedMemoryRange& range,
                              const RangeNeed& need, const Regions* regions,
                              const std::optional<kernels::DeviceUuid>& device,
                              const std::string& field);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_MEMORY_H_
