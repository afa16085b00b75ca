// Memory that a client shares with the server.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_REGION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "kernels/corrector.h"

namespace counterweight::server {

// The server's access to a region: inputs are read, outputs written. For memory
// of a device this is a promise: the driver has no read-only memory.
enum class RegionAccess : uint32_t { kRead = 1, kWrite = 2 };

// One mapping of a client's memfd, or of its device memory, which ends with its
// last owner. The client may change the bytes at any time: copy a value before
// you check it.
class Region {
 public:
  virtual ~Region() = default;

  // The first byte, aligned to 256. Write only with access kWrite. If device()
  // is set, the address is for the backend only: the host can neither read nor
  // write there.
  virtual std::byte* data() const = 0;
  virtual int64_t size() const = 0;
  virtual RegionAccess access() const = 0;
  // The device of the memory; none: the host.
  virtual std::optional<kernels::DeviceUuid> device() const { return {}; }
  // Expires when memory of a device has been closed. A weak pointer to the
  // region expires before that, with its last owner. Expired for the host's.
  virtual std::weak_ptr<const void> open() const { return {}; }
};

// True if bytes [offset, offset + length) are inside a region of `size` bytes;
// correct for all numbers.
constexpr bool Contains(int64_t size, uint64_t offset, uint64_t length) {
  const auto bytes = static_cast<uint64_t>(size);
  return size >= 0 && offset <= bytes && length <= bytes - offset;
}

// Finds regions by handle. Thread-safe.
class Regions {
 public:
  virtual ~Regions() = default;

  // Null if no open connection registered `handle`, which may have any bytes.
  virtual std::shared_ptr<const Region> Find(std::string_view handle) const = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_REGION_H_
