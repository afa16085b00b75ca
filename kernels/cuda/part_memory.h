// Device memory of other processes that consists of allocations mapped one
// behind another, as torch's expandable segments do.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_PART_MEMORY_H_
#define COUNTERWEIGHT_KERNELS_CUDA_PART_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

namespace counterweight::kernels {

// The mappings of one device; thread-safe. All are closed before it ends.
class PartMemory {
 public:
  // See Corrector::OpenDeviceParts. REQUIRES: `device` is current.
  void* Open(std::span<const int> parts, int64_t part_bytes, int device,
             std::string* error);
  // Returns false if `memory` was not opened here.
  bool Close(void* memory);

 private:
  struct Range {
    size_t part_bytes;
    size_t parts;
  };

  std::mutex mutex_;
  std::map<const void*, Range> ranges_;  // by first byte
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_PART_MEMORY_H_
