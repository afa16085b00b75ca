// Handles of regions.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_REGISTRY_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_REGISTRY_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "server/engine/region.h"
#include "server/shared_memory/control.h"

namespace counterweight::server {

// The regions of all connections. Thread-safe.
class RegionRegistry final : public Regions {
 public:
  // Adds a region under an unguessable fresh handle; returns none if the kernel
  // has no random numbers.
  std::optional<RegionHandle> Add(std::shared_ptr<const Region> region);

  // Ignores unknown handles.
  void Remove(const RegionHandle& handle);

  std::shared_ptr<const Region> Find(std::string_view handle) const override;

 private:
  // Handles are random: any of their bytes are a hash, and times of computing
  // and comparing it reveal nothing about other handles.
  struct Hash {
    size_t operator()(const RegionHandle& handle) const;
  };

  mutable std::mutex mutex_;  // guards regions_
  std::unordered_map<RegionHandle, std::shared_ptr<const Region>, Hash>
      regions_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_REGISTRY_H_
