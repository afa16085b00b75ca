// Memory of a device that a server can open.
#ifndef COUNTERWEIGHT_CLIENT_CPP_DEVICE_ALLOCATION_H_
#define COUNTERWEIGHT_CLIENT_CPP_DEVICE_ALLOCATION_H_

#include <array>
#include <compare>
#include <cstdint>

namespace counterweight::client {

using DeviceUuid = std::array<char, 16>;

// An allocation of the driver, which the server opens as a whole; a tensor may
// be any part of it.
struct DeviceAllocation {
  uint64_t address = 0;
  // Bytes.
  uint64_t size = 0;
  DeviceUuid device{};
  // The handle of CUDA IPC; another one for each allocation.
  std::array<char, 64> handle{};

  auto operator<=>(const DeviceAllocation&) const = default;  // NOLINT
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_DEVICE_ALLOCATION_H_
