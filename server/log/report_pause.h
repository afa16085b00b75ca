// How often the log has a line about what clients do: they decide how often it
// happens.
#ifndef COUNTERWEIGHT_SERVER_LOG_REPORT_PAUSE_H_
#define COUNTERWEIGHT_SERVER_LOG_REPORT_PAUSE_H_

#include <chrono>

namespace counterweight::server {

// Not thread-safe.
class ReportPause {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Shortest time between two lines.
  static constexpr std::chrono::seconds kPause{10};

  // True if a line is due now, which is then the last one.
  bool IsDue(Time now) {
    if (now < again_) return false;
    again_ = now + kPause;
    return true;
  }

 private:
  Time again_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LOG_REPORT_PAUSE_H_
