#include "server/call/call_clock.h"

#include <utility>
#include <vector>

namespace counterweight::server {

CallClock::CallClock(std::chrono::nanoseconds period)
    : ticker_(period, [this] { Tick(); }) {}

std::shared_ptr<void> CallClock::Watch(std::weak_ptr<TimedCall> call) {
  const std::lock_guard<std::mutex> lock(watched_->mutex);
  const uint64_t id = watched_->next_id++;
  watched_->calls.emplace(id, std::move(call));
  return {watched_.get(), [watched = watched_, id](void*) {
            const std::lock_guard<std::mutex> guard(watched->mutex);
            watched->calls.erase(id);
          }};
}

void CallClock::Tick() {
  std::vector<std::weak_ptr<TimedCall>> calls;
  {
    const std::lock_guard<std::mutex> guard(watched_->mutex);
    calls.reserve(watched_->calls.size());
    for (const auto& [id, call] : watched_->calls) calls.push_back(call);
  }
  // Outside the mutex: a call that ends destroys its Watch.
  const auto now = std::chrono::steady_clock::now();
  for (const auto& each : calls) {
    if (const std::shared_ptr<TimedCall> call = each.lock()) call->OnTick(now);
  }
}

}  // namespace counterweight::server
