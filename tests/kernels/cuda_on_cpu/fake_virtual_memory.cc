// Virtual memory of the fake devices: exported allocations, mapped into ranges
// of addresses.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/kernels/cuda_on_cpu/fake_memory.h"

namespace counterweight::fake_cuda {
namespace {

constexpr size_t kGranularity = 4096;
constexpr std::string_view kName = "/memfd:fake_cuda_part_";

// The device of an exported allocation; -1: the file is something else.
int DeviceOfFile(int file) {
  char name[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (readlink(link.c_str(), name, sizeof(name) - 1) < 0) return -1;
  const std::string_view target = name;
  return target.starts_with(kName) ? std::atoi(name + kName.size()) : -1;
}

size_t SizeOfFile(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 ? static_cast<size_t>(status.st_size) : 0;
}

void* At(unsigned long long address) {
  return reinterpret_cast<void*>(address);
}

// Replaces what is mapped there by nothing.
void Blank(unsigned long long begin, size_t size) {
  mmap(At(begin), size, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

cudaError_t Memory::Import(int file, unsigned long long* handle) {
  const int device = DeviceOfFile(file);
  if (device < 0) return cudaErrorInvalidValue;
  const int own = dup(file);
  if (own < 0) return cudaErrorUnknown;
  *handle = next_handle_++;
  handles_[*handle] = {own, device};
  return cudaSuccess;
}

cudaError_t Memory::DeviceOf(unsigned long long handle, int* device) const {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return cudaErrorInvalidValue;
  *device = found->second.device;
  return cudaSuccess;
}

cudaError_t Memory::Release(unsigned long long handle) {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return cudaErrorInvalidValue;
  close(found->second.file);
  handles_.erase(found);
  return cudaSuccess;
}

cudaError_t Memory::Reserve(size_t size, unsigned long long* begin) {
  if (size == 0 || size % kGranularity != 0) return cudaErrorInvalidValue;
  void* const memory = mmap(nullptr, size, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return cudaErrorMemoryAllocation;
  Add(memory, {.kind = MemoryKind::kReserved, .device = -1, .size = size});
  *begin = reinterpret_cast<unsigned long long>(memory);
  return cudaSuccess;
}

cudaError_t Memory::FreeRange(unsigned long long begin, size_t size) {
  const Allocation* range = At(fake_cuda::At(begin));
  if (range == nullptr || range->kind != MemoryKind::kReserved ||
      range->size != size || !range->parts.empty()) {
    return cudaErrorInvalidValue;
  }
  munmap(fake_cuda::At(begin), size);
  allocations_.erase(begin);
  return cudaSuccess;
}

Allocation* Memory::RangeAround(unsigned long long begin, size_t size) {
  auto found = allocations_.upper_bound(begin);
  if (found == allocations_.begin()) return nullptr;
  --found;
  const bool contains = found->second.kind == MemoryKind::kReserved &&
                        size <= found->second.size &&
                        begin - found->first <= found->second.size - size;
  return contains ? &found->second : nullptr;
}

cudaError_t Memory::MapPart(unsigned long long begin, size_t size,
                            unsigned long long handle) {
  Allocation* const range = RangeAround(begin, size);
  const auto imported = handles_.find(handle);
  if (range == nullptr || imported == handles_.end() || size == 0 ||
      size % kGranularity != 0 || begin % kGranularity != 0 ||
      size > SizeOfFile(imported->second.file) ||
      range->parts.contains(begin)) {
    return cudaErrorInvalidValue;
  }
  const int file = dup(imported->second.file);
  if (mmap(fake_cuda::At(begin), size, PROT_NONE, MAP_SHARED | MAP_FIXED, file,
           0) == MAP_FAILED) {
    close(file);
    return cudaErrorUnknown;
  }
  range->parts[begin] = {size, file, imported->second.device};
  return cudaSuccess;
}

cudaError_t Memory::UnmapPart(unsigned long long begin, size_t size) {
  Allocation* const range = RangeAround(begin, size);
  if (range == nullptr) return cudaErrorInvalidValue;
  const auto part = range->parts.find(begin);
  if (part == range->parts.end() || part->second.size != size) {
    return cudaErrorInvalidValue;
  }
  Blank(begin, size);
  close(part->second.file);
  range->parts.erase(part);
  range->accessible = false;
  return cudaSuccess;
}

cudaError_t Memory::GrantAccess(unsigned long long begin, size_t size,
                                int device) {
  Allocation* const range = At(fake_cuda::At(begin));
  if (range == nullptr || range->kind != MemoryKind::kReserved ||
      range->size != size) {
    return cudaErrorInvalidValue;
  }
  size_t mapped = 0;
  for (const auto& [address, part] : range->parts) {
    if (part.device != device) return cudaErrorInvalidDevice;
    mapped += part.size;
  }
  if (mapped != size) return cudaErrorInvalidValue;
  range->accessible = true;
  range->device = device;
  if (unlocked_ > 0)
    mprotect(fake_cuda::At(begin), size, PROT_READ | PROT_WRITE);
  return cudaSuccess;
}

}  // namespace counterweight::fake_cuda
