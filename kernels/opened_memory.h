// Where the device memory of other processes lies.
#ifndef COUNTERWEIGHT_KERNELS_OPENED_MEMORY_H_
#define COUNTERWEIGHT_KERNELS_OPENED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace counterweight::kernels {

// What Corrector::OpenDeviceMemory of several devices gave. Addresses are those
// of one process, in which no two devices have the same. Thread-safe.
class OpenedMemory {
 public:
  // `memory` may have been opened before: CUDA answers the same address to
  // whoever opens the same memory again.
  void Add(const void* memory, int64_t bytes, size_t device);
  // Takes back one Add; the device, or nothing if there was none.
  std::optional<size_t> Remove(const void* memory);
  // The device that `byte` lies on; nothing if it is in no such memory.
  std::optional<size_t> DeviceOf(const void* byte) const;

 private:
  struct Range {
    uintptr_t bytes = 0;
    size_t device = 0;
    int times = 0;
  };

  mutable std::mutex mutex_;
  std::map<uintptr_t, Range> ranges_;  // by the first byte
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_OPENED_MEMORY_H_
