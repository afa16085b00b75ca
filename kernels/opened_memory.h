// A map from addresses of other processes' device memory to devices.
#ifndef COUNTERWEIGHT_KERNELS_OPENED_MEMORY_H_
#define COUNTERWEIGHT_KERNELS_OPENED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace counterweight::kernels {

// Holds the memory that Corrector::OpenDeviceMemory of several devices opened.
// Addresses are those of one process, in which no two devices share one.
// Thread-safe.
class OpenedMemory {
 public:
  // `memory` may be open already: CUDA returns the same address each time the
  // same memory is opened.
  void Add(const void* memory, int64_t bytes, size_t device);
  // Undoes one Add. Returns the device, or nothing if there was none.
  std::optional<size_t> Remove(const void* memory);
  // Returns the device that `byte` lies on; nothing if no such memory contains
  // it.
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
