#include "tests/kernels/cuda_on_cpu/fake_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

namespace counterweight::fake_cuda {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kPage = 4096;
// A value that no test expects.
constexpr int kFresh = 0xa5;
constexpr int kStale = 0x5a;

size_t RoundUp(size_t size, size_t unit) {
  return (std::max<size_t>(size, 1) + unit - 1) / unit * unit;
}

// Content of a handle: the process, its descriptor, and the file's identity.
struct Exported {
  char magic[16];
  pid_t process;
  int file;
  uint64_t id;
  uint64_t size;
  int device;
};
static_assert(sizeof(Exported) <= sizeof(cudaIpcMemHandle_t));
constexpr char kMagic[16] = "fake cuda ipc 1";

uint64_t IdOf(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 ? status.st_ino : 0;
}

void* Map(size_t size, int protection, int flags, int file) {
  void* memory = mmap(nullptr, size, protection, flags, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

Memory::Memory(int devices, size_t bytes_each)
    : bytes_each_(RoundUp(bytes_each, kPage)) {
  for (int i = 0; i < devices; ++i) {
    void* begin = Map(bytes_each_, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    arenas_.push_back({static_cast<char*>(begin)});
  }
}

size_t Memory::used(int device) const {
  size_t sum = 0;
  for (const auto& [address, allocation] : allocations_) {
    const bool own = allocation.kind == MemoryKind::kPooled ||
                     allocation.kind == MemoryKind::kShared;
    if (own && allocation.device == device) {
      sum += RoundUp(allocation.size, kAlignment);
    }
  }
  return sum;
}

void Memory::Add(void* memory, const Allocation& allocation) {
  allocations_[reinterpret_cast<uintptr_t>(memory)] = allocation;
  if (allocation.kind == MemoryKind::kOpened ||
      allocation.kind == MemoryKind::kReserved ||
      allocation.kind == MemoryKind::kRegistered) {
    return;
  }
  if (allocation.kind == MemoryKind::kPinned) {
    std::memset(memory, kFresh, allocation.size);
    return;
  }
  int64_t sum = 0;
  for (size_t i = 0; i < num_devices(); ++i) {
    sum += static_cast<int64_t>(used(static_cast<int>(i)));
  }
  peak = std::max(peak, sum);
}

void* Memory::AllocatePooled(int device, size_t size, cudaMemPool_t pool) {
  const size_t wanted = RoundUp(size, kAlignment);
  if (used(device) + wanted > bytes_each_) return nullptr;
  Arena& arena = arenas_[static_cast<size_t>(device)];
  const auto begin = reinterpret_cast<uintptr_t>(arena.begin);
  uintptr_t at = begin;
  for (auto it = allocations_.lower_bound(begin);
       it != allocations_.end() && it->first < begin + bytes_each_; ++it) {
    if (it->first - at >= wanted) break;
    at = it->first + RoundUp(it->second.size, kAlignment);
  }
  if (at + wanted > begin + bytes_each_) return nullptr;
  const size_t touched = RoundUp(at + wanted - begin, kPage);
  if (touched > arena.touched) {
    arena.touched = touched;
    if (unlocked_ > 0) Protect(PROT_READ | PROT_WRITE);
  }
  auto* memory = reinterpret_cast<void*>(at);
  Add(memory, {.kind = MemoryKind::kPooled,
               .device = device,
               .size = size,
               .pool = pool});
  return memory;
}

void* Memory::AllocateShared(int device, size_t size) {
  if (used(device) + RoundUp(size, kAlignment) > bytes_each_) return nullptr;
  const int file = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  const size_t mapped = RoundUp(size, kPage);
  void* memory = ftruncate(file, static_cast<off_t>(mapped)) == 0
                     ? Map(mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file)
                     : nullptr;
  if (memory == nullptr) {
    close(file);
    return nullptr;
  }
  std::memset(memory, kFresh, size);
  if (unlocked_ == 0) mprotect(memory, mapped, PROT_NONE);
  Add(memory, {MemoryKind::kShared, device, size, file, 0, -1, IdOf(file)});
  return memory;
}

void* Memory::AllocatePinned(size_t size) {
  void* memory = std::aligned_alloc(kAlignment, RoundUp(size, kAlignment));
  if (memory != nullptr) Add(memory, {MemoryKind::kPinned, 0, size});
  return memory;
}

cudaError_t Memory::Register(void* memory, size_t size) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  if (memory == nullptr || size == 0) return cudaErrorInvalidValue;
  const auto behind = allocations_.lower_bound(begin + size);
  const bool overlaps =
      behind != allocations_.begin() &&
      std::prev(behind)->first + std::prev(behind)->second.size > begin;
  if (overlaps) return cudaErrorHostMemoryAlreadyRegistered;
  Add(memory, {MemoryKind::kRegistered, 0, size});
  return cudaSuccess;
}

cudaError_t Memory::Unregister(void* memory) {
  const Allocation* allocation = At(memory);
  if (allocation == nullptr || allocation->kind != MemoryKind::kRegistered) {
    return cudaErrorHostMemoryNotRegistered;
  }
  allocations_.erase(reinterpret_cast<uintptr_t>(memory));
  return cudaSuccess;
}

void Memory::Free(void* memory) {
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(memory));
  const Allocation allocation = found->second;
  {
    const DeviceAccess access(this);
    std::memset(memory, kStale, allocation.size);
  }
  allocations_.erase(found);
  if (allocation.kind == MemoryKind::kPinned) std::free(memory);
  if (allocation.kind == MemoryKind::kShared) {
    munmap(memory, RoundUp(allocation.size, kPage));
    close(allocation.file);
  }
}

const Allocation* Memory::Find(const void* memory, size_t size) const {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  auto found = allocations_.upper_bound(at);
  if (found == allocations_.begin()) return nullptr;
  --found;
  const uintptr_t end = found->first + found->second.size;
  if (found->second.kind == MemoryKind::kReserved &&
      !found->second.accessible) {
    return nullptr;
  }
  return at + size <= end && at <= end ? &found->second : nullptr;
}

Allocation* Memory::At(void* memory) {
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(memory));
  return found == allocations_.end() ? nullptr : &found->second;
}

const void* Memory::BaseOf(const void* memory) const {
  auto found = allocations_.upper_bound(reinterpret_cast<uintptr_t>(memory));
  return reinterpret_cast<const void*>((--found)->first);
}

cudaError_t Memory::Export(void* memory, cudaIpcMemHandle_t* handle) {
  const Allocation* allocation = Find(memory, 1);
  if (allocation == nullptr || allocation->kind != MemoryKind::kShared) {
    return cudaErrorInvalidValue;
  }
  Exported exported{};
  std::memcpy(exported.magic, kMagic, sizeof(kMagic));
  exported.process = getpid();
  exported.file = allocation->file;
  exported.id = allocation->id;
  exported.size = allocation->size;
  exported.device = allocation->device;
  *handle = {};
  std::memcpy(handle, &exported, sizeof(exported));
  return cudaSuccess;
}

cudaError_t Memory::Open(const cudaIpcMemHandle_t& handle, int current,
                         void** memory) {
  Exported exported{};
  std::memcpy(&exported, &handle, sizeof(exported));
  if (std::memcmp(exported.magic, kMagic, sizeof(kMagic)) != 0 ||
      exported.device < 0 ||
      exported.device >= static_cast<int>(num_devices())) {
    return cudaErrorInvalidValue;
  }
  if (exported.process == getpid()) return cudaErrorDeviceUninitialized;
  for (auto& [address, allocation] : allocations_) {
    if (allocation.kind != MemoryKind::kOpened ||
        allocation.id != exported.id || allocation.opener != current) {
      continue;
    }
    ++allocation.opened;
    *memory = reinterpret_cast<void*>(address);
    return cudaSuccess;
  }
  const std::string path = "/proc/" + std::to_string(exported.process) +
                           "/fd/" + std::to_string(exported.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return cudaErrorMapBufferObjectFailed;
  void* mapped = nullptr;
  if (IdOf(file) == exported.id) {
    mapped = Map(RoundUp(exported.size, kPage),
                 unlocked_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED,
                 file);
  }
  if (mapped == nullptr) {
    close(file);
    return cudaErrorMapBufferObjectFailed;
  }
  Add(mapped, {MemoryKind::kOpened, exported.device, exported.size, file, 1,
               current, exported.id});
  *memory = mapped;
  return cudaSuccess;
}

cudaError_t Memory::Close(void* memory, int current) {
  Allocation* allocation = At(memory);
  if (allocation == nullptr || allocation->kind != MemoryKind::kOpened ||
      allocation->opener != current) {
    return cudaErrorInvalidValue;
  }
  if (--allocation->opened > 0) return cudaSuccess;
  munmap(memory, RoundUp(allocation->size, kPage));
  close(allocation->file);
  allocations_.erase(reinterpret_cast<uintptr_t>(memory));
  return cudaSuccess;
}

void Memory::Protect(int protection) {
  for (const Arena& arena : arenas_) {
    if (arena.touched > 0) mprotect(arena.begin, arena.touched, protection);
  }
  for (const auto& [address, allocation] : allocations_) {
    for (const auto& [begin, part] : allocation.parts) {
      if (!allocation.accessible) break;
      mprotect(reinterpret_cast<void*>(begin), part.size, protection);
    }
    if (allocation.file < 0) continue;
    mprotect(reinterpret_cast<void*>(address), RoundUp(allocation.size, kPage),
             protection);
  }
}

void Memory::Unlock() {
  if (unlocked_++ == 0) Protect(PROT_READ | PROT_WRITE);
}

void Memory::Lock() {
  if (--unlocked_ == 0) Protect(PROT_NONE);
}

}  // namespace counterweight::fake_cuda
