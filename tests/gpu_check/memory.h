// The memory in which a candidate's tensors lie: the host's, or a device's.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_MEMORY_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_MEMORY_H_

#include <cstddef>
#include <memory>

#include "kernels/corrector.h"

namespace counterweight::kernels {

class Memory {
 public:
  virtual ~Memory() = default;
  // Null: there is not so much.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Between this memory and the host's, in either direction, and within it.
  // Waits. False: the device failed.
  virtual bool Copy(void* to, const void* from, size_t bytes) = 0;
};

std::unique_ptr<Memory> MakeHostMemory();

// The host's, from which transfers are fast: Corrector::AllocateHost. Has
// nothing to give where that has nothing. The corrector outlives it.
std::unique_ptr<Memory> MakePinnedMemory(Corrector& corrector);

// That memory, or else ordinary host memory.
std::unique_ptr<Memory> MakeFastestHostMemory(Corrector& corrector);

// Memory of device 0. Null in builds without CUDA.
std::unique_ptr<Memory> MakeDeviceMemory();

// An allocation with an owner.
class Block {
 public:
  Block(Memory& memory, size_t bytes)
      : memory_(memory), data_(memory.Allocate(bytes)) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    if (data_ != nullptr) memory_.Free(data_);
  }
  // Null: there was not so much.
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  Memory& memory_;
  void* data_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_MEMORY_H_
