#include "kernels/cuda/device_share.h"

#include <chrono>
#include <utility>

namespace counterweight::kernels {

bool DeviceShare::Request(Waiter* waiter) {
  const std::lock_guard lock(mutex_);
  waiter->has_share = line_.empty() && Fits(waiter->bytes);
  if (waiter->has_share) {
    Use(waiter->bytes);
  } else {
    line_.push_back(waiter);
  }
  return waiter->has_share;
}

bool DeviceShare::HasShare(const Waiter& waiter) {
  const std::lock_guard lock(mutex_);
  return waiter.has_share;
}

bool DeviceShare::Leave(Waiter* waiter) {
  Wakes wakes;
  {
    const std::lock_guard lock(mutex_);
    if (waiter->has_share) return true;
    line_.remove(waiter);
    wakes = ServeLine();  // the next one may fit
  }
  for (const std::function<void()>& wake : wakes) wake();
  return false;
}

bool DeviceShare::Take(int64_t bytes, const StopRequest& stop) {
  // This thread gets no signal when its caller has gone, so it polls `stop`.
  constexpr auto kPatience = std::chrono::milliseconds(20);
  Waiter waiter{.bytes = bytes, .wake = nullptr};
  if (Request(&waiter)) return true;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kPatience, [&] { return waiter.has_share; });
      if (waiter.has_share) return true;
    }
    if (stop && stop()) return Leave(&waiter);
  }
}

DeviceShare::Wakes DeviceShare::ServeLine() {
  Wakes wakes;
  while (!line_.empty() && Fits(line_.front()->bytes)) {
    Waiter* const next = line_.front();
    line_.pop_front();
    Use(next->bytes);
    next->has_share = true;
    // Copied: the waiter may be gone when it is called.
    if (next->wake) wakes.push_back(next->wake);
  }
  changed_.notify_all();
  return wakes;
}

bool DeviceShare::TryTake(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!line_.empty() || used_runs_ + 1 > runs_ / 2 ||
      bytes > bytes_ / 2 - used_bytes_) {
    return false;
  }
  Use(bytes);
  return true;
}

void DeviceShare::GiveBack(int64_t bytes) {
  Wakes wakes;
  {
    const std::lock_guard lock(mutex_);
    --used_runs_;
    used_bytes_ -= bytes;
    wakes = ServeLine();
  }
  for (const std::function<void()>& wake : wakes) wake();
}

int64_t DeviceShare::NeededLately() {
  const std::lock_guard lock(mutex_);
  const int64_t needed = std::max(peak_, last_peak_);
  last_peak_ = std::exchange(peak_, used_bytes_);
  return needed;
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
