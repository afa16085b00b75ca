#include "server/shared_memory/warning_limit.h"

#include <utility>

namespace counterweight::server {

std::optional<int64_t> WarningLimit::Take(Time now) {
  if (last_ && now - *last_ < kInterval) {
    held_back_ += 1;
    return std::nullopt;
  }
  last_ = now;
  return std::exchange(held_back_, 0);
}

}  // namespace counterweight::server
