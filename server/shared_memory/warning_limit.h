// A rate limit for warnings that clients cause.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_WARNING_LIMIT_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_WARNING_LIMIT_H_

#include <chrono>
#include <cstdint>
#include <optional>

namespace counterweight::server {

// Permits one warning per second. For one thread.
class WarningLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kInterval{1};

  // Returns how many were suppressed since the last permitted one, if this one
  // is permitted; none if it is suppressed.
  std::optional<int64_t> Take(Time now);

 private:
  std::optional<Time> last_;
  int64_t held_back_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_WARNING_LIMIT_H_
