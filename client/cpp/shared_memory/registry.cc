#include "client/cpp/shared_memory/registry.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

namespace counterweight::client {
namespace {

// Sizes are rounded up to these steps, so that batches of similar size share
// regions.
constexpr size_t kStepBytes = size_t{8} << 20;
// Between two questions whether the server still uses device memory. It ends
// its use shortly after the answer.
constexpr std::chrono::microseconds kShortestPause{20};
constexpr std::chrono::microseconds kLongestPoll{2000};

uintptr_t AddressOf(const void* data) {
  return reinterpret_cast<uintptr_t>(data);
}

}  // namespace

class Registry::Turn {
 public:
  Turn(Registry* registry, const Bounds& bounds) : registry_(*registry) {
    std::unique_lock lock(registry_.mutex_);
    if (registry_.turn_ended_.wait_until(
            lock, bounds.stop, bounds.deadline,
            [this] { return !registry_.has_turn_; })) {
      registry_.has_turn_ = true;
    } else if (bounds.stop.stop_requested()) {
      status_ = {.code = StatusCode::kCancelled,
                 .message = "a stop was requested"};
    } else {
      status_ = {.code = StatusCode::kDeadlineExceeded,
                 .message =
                     "shared memory: other calls waited for the server "
                     "until the call's deadline"};
    }
  }
  ~Turn() {
    if (!status_.ok()) return;
    {
      const std::lock_guard lock(registry_.mutex_);
      registry_.has_turn_ = false;
    }
    registry_.turn_ended_.notify_one();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  const Status& status() const { return status_; }

 private:
  Registry& registry_;
  Status status_;
};

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
  allocated_[AddressOf((*region)->data())] = *region;
  return {};
}

std::shared_ptr<Region> Registry::Find(const void* data, size_t bytes,
                                       Access access) {
  // Declared before the lock: the destructor of a region's last owner takes the
  // mutex.
  std::shared_ptr<Region> region;
  const std::lock_guard lock(mutex_);
  const auto after = allocated_.upper_bound(AddressOf(data));
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

void Registry::Drop() {
  // Handles are valid as long as their connection.
  socket_.reset();
  handles_.clear();
  for (auto& [region, lent] : lent_) lent.handle.clear();
}

Status Registry::Connect(const std::string& path) {
  if (socket_ != nullptr && socket_->IsOpen()) return {};
  Drop();
  ++generation_;
  socket_ = std::make_shared<ControlSocket>();
  Status status = socket_->Connect(path);
  if (!status.ok()) socket_.reset();
  return status;
}

Status Registry::Enlist(const std::string& path, const Bounds& bounds,
                        const Known& known, const Ask& ask,
                        std::string* handle) {
  const auto is_known = [&] {
    if (socket_ == nullptr || !socket_->IsOpen()) return false;
    *handle = *known();
    return !handle->empty();
  };
  {
    const std::lock_guard lock(mutex_);
    if (is_known()) return {};
  }
  const Turn turn(this, bounds);
  if (!turn.status().ok()) return turn.status();
  std::shared_ptr<ControlSocket> socket;
  {
    const std::lock_guard lock(mutex_);
    Status status = Connect(path);
    if (!status.ok()) return status;
    // The call before may have registered it.
    if (is_known()) return {};
    socket = socket_;
  }
  if (socket->IsLate()) {
    return {.code = StatusCode::kUnavailable,
            .message =
                "shared memory: the server has not answered a packet "
                "in its time"};
  }
  Status status = ask(socket.get(), handle);
  const std::lock_guard lock(mutex_);
  if (socket != socket_) {
    return {.code = StatusCode::kUnavailable,
            .message = "shared memory: the connection has ended"};
  }
  if (status.ok()) {
    *known() = *handle;
  } else if (status.code == StatusCode::kUnavailable && !socket->IsLate()) {
    Drop();
  }
  return status;
}

Status Registry::Register(const std::string& path, const Region& region,
                          const Bounds& bounds, std::string* handle) {
  return Enlist(
      path, bounds, [&] { return &handles_[&region]; },
      [&](ControlSocket* socket, std::string* new_handle) {
        return socket->Register(region, bounds, new_handle);
      },
      handle);
}

Status Registry::Register(const std::string& path, const DeviceRegion& region,
                          const Bounds& bounds, std::string* handle) {
  return Enlist(
      path, bounds, [&] { return &lent_[region].handle; },
      [&](ControlSocket* socket, std::string* new_handle) {
        return socket->Register(region.first, region.second, bounds,
                                new_handle);
      },
      handle);
}

void Registry::Use(const DeviceRegion& region) {
  const std::lock_guard lock(mutex_);
  ++lent_[region].uses;
}

void Registry::EndUse(const DeviceRegion& region) {
  std::shared_ptr<ControlSocket> socket;
  std::string handle;
  {
    const std::lock_guard lock(mutex_);
    const auto lent = lent_.find(region);
    if (--lent->second.uses > 0) return;
    socket = socket_;
    handle = std::move(lent->second.handle);
    lent_.erase(lent);
  }
  if (!handle.empty()) Release(socket, {std::move(handle)}, kPatience);
}

bool Registry::Withdraw(const std::vector<DeviceRegion>& regions,
                        std::chrono::milliseconds patience) {
  std::shared_ptr<ControlSocket> socket;
  std::vector<std::string> handles;
  {
    const std::lock_guard lock(mutex_);
    socket = socket_;
    for (const DeviceRegion& region : regions) {
      std::string& handle = lent_[region].handle;
      if (!handle.empty()) handles.push_back(std::exchange(handle, ""));
    }
  }
  return Release(socket, std::move(handles), patience);
}

bool Registry::Release(const std::shared_ptr<ControlSocket>& socket,
                       std::vector<std::string> handles,
                       std::chrono::milliseconds patience) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + patience;
  std::chrono::microseconds pause = kShortestPause;
  while (socket != nullptr && !handles.empty()) {
    bool in_use = false;
    const Bounds bounds{steady_clock::now() + kPatience, {}};
    Status status;
    {
      const Turn turn(this, bounds);
      // A server with a late answer gets no other packet.
      if (!turn.status().ok() || socket->IsLate()) return false;
      status = socket->Release(handles.back(), bounds, &in_use);
    }
    if (status.code == StatusCode::kUnavailable && !in_use) {
      const std::lock_guard lock(mutex_);
      if (socket == socket_) Drop();
    }
    if (!in_use) {
      handles.pop_back();
    } else if (!status.ok() || steady_clock::now() > end) {
      return false;
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPoll);
    }
  }
  return true;
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
  const auto allocated = allocated_.find(AddressOf(region->data()));
  if (allocated != allocated_.end()) allocated_.erase(allocated);
  const auto known = handles_.find(region);
  if (known == handles_.end()) return;
  const std::string handle = std::move(known->second);
  handles_.erase(known);
  // A connection that cannot send the release is closed, which releases all its
  // regions.
  if (socket_ != nullptr && !handle.empty() && !socket_->Release(handle)) {
    Drop();
  }
}

}  // namespace counterweight::client
