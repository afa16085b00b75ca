#include "client/cpp/shared_memory/registry.h"

#include <algorithm>
#include <utility>

namespace counterweight::client {
namespace {

// Sizes are rounded up to these steps, so that batches of similar size share
// regions.
constexpr size_t kStepBytes = size_t{8} << 20;

uintptr_t Address(const void* data) {
  return reinterpret_cast<uintptr_t>(data);
}

}  // namespace

Status Registry::Create(size_t bytes, Access access,
                        std::shared_ptr<Region>* region) {
  Status status = Region::Create(bytes, access, region);
  if (!status.ok()) return status;
  (*region)->OnDestroy([weak = weak_from_this()](const Region* gone) {
    if (const auto registry = weak.lock()) registry->Forget(gone);
  });
  return status;
}

Status Registry::Allocate(size_t bytes, Access access,
                          std::shared_ptr<Region>* region) {
  Status status = Create(bytes, access, region);
  if (!status.ok()) return status;
  const std::lock_guard lock(mutex_);
  allocated_[Address((*region)->data())] = *region;
  return {};
}

std::shared_ptr<Region> Registry::Find(const void* data, size_t bytes,
                                       Access access) {
  // Declared before the lock: the destructor of a region's last owner takes the
  // mutex.
  std::shared_ptr<Region> region;
  const std::lock_guard lock(mutex_);
  const auto after = allocated_.upper_bound(Address(data));
  if (after == allocated_.begin()) return nullptr;
  region = std::prev(after)->second.lock();
  if (region == nullptr || region->access() != access) return nullptr;
  return region->Contains(data, bytes) ? region : nullptr;
}

Status Registry::Acquire(size_t bytes, Access access,
                         std::shared_ptr<Region>* region) {
  // Regions that are too small are freed after the lock is released.
  std::vector<std::shared_ptr<Region>> dropped;
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const std::shared_ptr<Region>& idle) {
      return idle->access() == access && idle->size() >= bytes;
    };
    const auto found = std::find_if(idle_.begin(), idle_.end(), fits);
    if (found != idle_.end()) {
      *region = std::move(*found);
      idle_.erase(found);
      return {};
    }
    const auto small = std::stable_partition(
        idle_.begin(), idle_.end(),
        [&](const auto& idle) { return idle->access() != access; });
    dropped.assign(std::make_move_iterator(small),
                   std::make_move_iterator(idle_.end()));
    idle_.erase(small, idle_.end());
  }
  dropped.clear();
  const size_t steps = bytes / kStepBytes + 1;
  return Create(steps * kStepBytes, access, region);
}

void Registry::Recycle(std::shared_ptr<Region> region) {
  const std::lock_guard lock(mutex_);
  size_t bytes = region->size();
  for (const auto& idle : idle_) bytes += idle->size();
  // A region that is not kept is freed with the caller's pointer, after the
  // lock is released.
  if (bytes <= pool_bytes_) idle_.push_back(std::move(region));
}

bool Registry::Trim() {
  // Frees the regions after the lock is released.
  std::vector<std::shared_ptr<Region>> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(idle_);
  return !dropped.empty();
}

Status Registry::Register(const std::string& path, const Region& region,
                          std::string* handle) {
  const std::lock_guard lock(mutex_);
  if (socket_ == nullptr || !socket_->IsOpen()) {
    // Handles are valid as long as their connection.
    handles_.clear();
    ++generation_;
    socket_ = std::make_unique<ControlSocket>();
    Status status = socket_->Connect(path);
    if (!status.ok()) {
      socket_.reset();
      return status;
    }
  }
  const auto known = handles_.find(&region);
  if (known != handles_.end()) {
    *handle = known->second;
    return {};
  }
  Status status = socket_->Register(region, handle);
  if (status.ok()) {
    handles_[&region] = *handle;
  } else if (status.code == StatusCode::kUnavailable) {
    socket_.reset();
  }
  return status;
}

uint64_t Registry::generation() {
  const std::lock_guard lock(mutex_);
  return generation_;
}

void Registry::Renew(uint64_t generation) {
  const std::lock_guard lock(mutex_);
  if (generation == generation_) socket_.reset();
}

void Registry::Forget(const Region* region) {
  const std::lock_guard lock(mutex_);
  const auto allocated = allocated_.find(Address(region->data()));
  if (allocated != allocated_.end()) allocated_.erase(allocated);
  const auto known = handles_.find(region);
  if (known == handles_.end()) return;
  const std::string handle = std::move(known->second);
  handles_.erase(known);
  // A connection that cannot send the release is closed, which releases all its
  // regions.
  if (socket_ != nullptr && !socket_->Release(handle).ok()) {
    socket_.reset();
    handles_.clear();
  }
}

}  // namespace counterweight::client
