#include "kernels/cuda/device_share.h"

#include <chrono>
#include <utility>

namespace counterweight::kernels {

bool DeviceShare::Take(int64_t bytes, const StopRequest& stop) {
  // A waiting run gets no signal when its caller has gone, so it polls `stop`.
  constexpr auto kPatience = std::chrono::milliseconds(20);
  std::unique_lock lock(mutex_);
  const auto self = queue_.insert(queue_.end(), &bytes);
  bool stopped = false;
  while (queue_.begin() != self || !Fits(bytes)) {
    changed_.wait_for(lock, kPatience);
    if (!stop) continue;
    lock.unlock();
    stopped = stop();
    lock.lock();
    if (stopped) break;
  }
  if (!stopped) Use(bytes);
  queue_.erase(self);
  changed_.notify_all();  // the next one may fit as well
  return !stopped;
}

bool DeviceShare::TryTake(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!queue_.empty() || used_runs_ + 1 > runs_ / 2 ||
      bytes > bytes_ / 2 - used_bytes_) {
    return false;
  }
  Use(bytes);
  return true;
}

void DeviceShare::GiveBack(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  --used_runs_;
  used_bytes_ -= bytes;
  changed_.notify_all();
}

std::unique_ptr<Pipe> DeviceShare::TakePipe() {
  const std::lock_guard lock(mutex_);
  if (pipes_.empty()) return nullptr;
  std::unique_ptr<Pipe> pipe = std::move(pipes_.back());
  pipes_.pop_back();
  return pipe;
}

void DeviceShare::KeepPipe(std::unique_ptr<Pipe> pipe) {
  const std::lock_guard lock(mutex_);
  pipes_.push_back(std::move(pipe));
}

}  // namespace counterweight::kernels
