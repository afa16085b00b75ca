// Memory of the fake devices, and host memory known to them.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_FAKE_MEMORY_H_
#define COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_FAKE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace counterweight::fake_cuda {

enum class MemoryKind : uint8_t {
  kPooled,      // of a device, by cudaMallocAsync
  kShared,      // of a device, by cudaMalloc: other processes can open it
  kOpened,      // of a device, another process's
  kReserved,    // a range of addresses, for parts of other processes
  kPinned,      // of the host, by cudaHostAlloc
  kRegistered,  // of the host, its owner's
};

constexpr bool IsHost(MemoryKind kind) {
  return kind == MemoryKind::kPinned || kind == MemoryKind::kRegistered;
}

struct Allocation {
  MemoryKind kind;
  int device;
  size_t size;
  int file = -1;       // kShared, kOpened
  int opened = 0;      // kOpened: times
  int opener = -1;     // kOpened: the device that was current
  uint64_t id = 0;     // kShared, kOpened: of the file
  bool freed = false;  // kPooled: its stream will, and it must not be again
  cudaMemPool_t pool = nullptr;  // kPooled: of the device's default pool: null
  // kReserved: what is mapped, by address; all of it accessible, or nothing.
  struct Part {
    size_t size;
    int file;
    int device;
  };
  std::map<uintptr_t, Part> parts = {};
  bool accessible = false;
};

// Guarded by the runtime's lock.
class Memory {
 public:
  Memory(int devices, size_t bytes_each);

  size_t num_devices() const { return arenas_.size(); }
  size_t bytes_each() const { return bytes_each_; }
  size_t used(int device) const;

  // Null: there is not enough.
  void* AllocatePooled(int device, size_t size, cudaMemPool_t pool);
  void* AllocateShared(int device, size_t size);
  void* AllocatePinned(size_t size);
  cudaError_t Register(void* memory, size_t size);
  cudaError_t Unregister(void* memory);
  // REQUIRES: memory begins an allocation of this process. Fills it with
  // rubbish first.
  void Free(void* memory);

  // Null: not memory that the devices know, or not all of one allocation.
  const Allocation* Find(const void* memory, size_t size) const;
  // The allocation that begins there; null: none does.
  Allocation* At(void* memory);
  // The beginning of the allocation around `memory`.
  const void* BaseOf(const void* memory) const;

  cudaError_t Export(void* memory, cudaIpcMemHandle_t* handle);
  // A mapping belongs to the device that is `current` when it is opened; the
  // same device must be current when it is closed.
  cudaError_t Open(const cudaIpcMemHandle_t& handle, int current,
                   void** memory);
  cudaError_t Close(void* memory, int current);

  // Virtual memory: a handle of an allocation that a process has exported as a
  // file descriptor, here of a memfd called fake_cuda_part_DEVICE.
  cudaError_t Import(int file, unsigned long long* handle);
  cudaError_t DeviceOf(unsigned long long handle, int* device) const;
  cudaError_t Release(unsigned long long handle);
  size_t num_handles() const { return handles_.size(); }
  // `size` is a multiple of the page, as a device's of 2 MiB.
  cudaError_t Reserve(size_t size, unsigned long long* begin);
  cudaError_t FreeRange(unsigned long long begin, size_t size);
  cudaError_t MapPart(unsigned long long begin, size_t size,
                      unsigned long long handle);
  cudaError_t UnmapPart(unsigned long long begin, size_t size);
  cudaError_t GrantAccess(unsigned long long begin, size_t size, int device);

  // Device memory is accessible between these calls, which nest.
  void Unlock();
  void Lock();

  const std::map<uintptr_t, Allocation>& allocations() const {
    return allocations_;
  }
  int64_t peak = 0;

 private:
  struct Arena {
    char* begin;
    size_t touched = 0;  // bytes from begin that were ever allocated
  };

  struct Imported {
    int file;
    int device;
  };

  // The range that contains [begin, begin + size); null: none does.
  Allocation* RangeAround(unsigned long long begin, size_t size);
  void Protect(int protection);
  void Add(void* memory, const Allocation& allocation);

  size_t bytes_each_;
  std::vector<Arena> arenas_;
  std::map<uintptr_t, Allocation> allocations_;
  std::map<unsigned long long, Imported> handles_;
  unsigned long long next_handle_ = 1;
  int unlocked_ = 0;  // times
};

// Device memory is accessible while it lives.
class DeviceAccess {
 public:
  explicit DeviceAccess(Memory* memory) : memory_(memory) { memory->Unlock(); }
  ~DeviceAccess() { memory_->Lock(); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  Memory* const memory_;
};

}  // namespace counterweight::fake_cuda

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_FAKE_MEMORY_H_
