#include "server/shared_memory/registry.h"

#include <sys/random.h>

#include <cstring>
#include <utility>

namespace counterweight::server {

size_t RegionRegistry::Hash::operator()(const RegionHandle& handle) const {
  size_t hash;
  static_assert(sizeof(hash) <= sizeof(RegionHandle));
  std::memcpy(&hash, handle.data(), sizeof(hash));
  return hash;
}

std::optional<RegionHandle> RegionRegistry::Add(
    std::shared_ptr<const Region> region) {
  RegionHandle handle;
  // getrandom returns so few bytes completely or not at all.
  if (getrandom(handle.data(), handle.size(), 0) !=
      static_cast<ssize_t>(handle.size())) {
    return std::nullopt;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  regions_.insert_or_assign(handle, std::move(region));
  return handle;
}

void RegionRegistry::Remove(const RegionHandle& handle) {
  // Unmapping takes long, so the lock is released first.
  std::shared_ptr<const Region> removed;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = regions_.find(handle);
  if (found == regions_.end()) return;
  removed = std::move(found->second);
  regions_.erase(found);
}

std::shared_ptr<const Region> RegionRegistry::Find(
    std::string_view handle) const {
  RegionHandle key;
  if (handle.size() != key.size()) return nullptr;
  std::memcpy(key.data(), handle.data(), key.size());
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = regions_.find(key);
  return found == regions_.end() ? nullptr : found->second;
}

}  // namespace counterweight::server
