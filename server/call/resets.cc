#include "server/call/resets.h"

namespace counterweight::server {

void Resets::Add(const std::string& connection, Time now) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (now - window_ >= kWindow) {
      window_ = now;
      counts_.clear();
    }
    if (++counts_[connection] != kMost + 1) return;
  }
  on_flood_(connection);
}

}  // namespace counterweight::server
