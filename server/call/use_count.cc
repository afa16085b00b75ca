#include "server/call/use_count.h"

namespace counterweight::server {

std::shared_ptr<void> UseCount::Use() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++uses_;
  }
  return {this, [this](void*) {
            // Under the lock: the one who waits may destroy this at once.
            const std::lock_guard<std::mutex> lock(mutex_);
            if (--uses_ == 0) unused_.notify_all();
          }};
}

void UseCount::WaitUntilUnused() {
  std::unique_lock<std::mutex> lock(mutex_);
  unused_.wait(lock, [this] { return uses_ == 0; });
}

}  // namespace counterweight::server
