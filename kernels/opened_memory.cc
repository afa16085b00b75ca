#include "kernels/opened_memory.h"

#include <iterator>

namespace counterweight::kernels {
namespace {

uintptr_t Address(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory);
}

}  // namespace

void OpenedMemory::Add(const void* memory, int64_t bytes, size_t device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Range& range = ranges_[Address(memory)];
  range.bytes = static_cast<uintptr_t>(bytes);
  range.device = device;
  ++range.times;
}

std::optional<size_t> OpenedMemory::Remove(const void* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = ranges_.find(Address(memory));
  if (found == ranges_.end()) return std::nullopt;
  const size_t device = found->second.device;
  if (--found->second.times == 0) ranges_.erase(found);
  return device;
}

std::optional<size_t> OpenedMemory::DeviceOf(const void* byte) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto after = ranges_.upper_bound(Address(byte));
  if (after == ranges_.begin()) return std::nullopt;
  const auto& [begin, range] = *std::prev(after);
  if (Address(byte) - begin >= range.bytes) return std::nullopt;
  return range.device;
}

}  // namespace counterweight::kernels
