// Warnings that clients cause, so many and no more.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_WARNING_LIMIT_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_WARNING_LIMIT_H_

#include <chrono>
#include <cstdint>
#include <optional>

namespace counterweight::server {

// Lets one of them through in a second. For one thread.
class WarningLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kInterval{1};

  // How many were held back since the last that was let through, if this one
  // is; none if it is held back.
  std::optional<int64_t> Take(Time now);

 private:
  std::optional<Time> last_;
  int64_t held_back_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_WARNING_LIMIT_H_
