// The end that a caller sets to its call: a deadline, or a flag.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_CANCELLATION_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_CANCELLATION_H_

#include <chrono>
#include <cstdint>

#include "server/embedded/counterweight.h"
#include "server/embedded/failure.h"

namespace counterweight::embedded {

// Reports when the caller no longer wants the answer.
class Cancellation {
 public:
  // As cw_request has them.
  Cancellation(const volatile int32_t* stop, double timeout_seconds)
      : stop_(stop), has_deadline_(timeout_seconds > 0.0) {
    // A time_point cannot hold more; a hundred years are no limit.
    constexpr double kLongest = 3e9;  // seconds
    if (!(timeout_seconds < kLongest)) has_deadline_ = false;
    if (!has_deadline_) return;
    deadline_ = std::chrono::steady_clock::now() +
                std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                    std::chrono::duration<double>(timeout_seconds));
  }

  // Returns CW_CANCELLED if the caller has set `stop`, CW_DEADLINE_EXCEEDED if
  // its deadline has passed, else CW_OK. Any thread may call it.
  int Code() const {
    if (stop_ != nullptr && *stop_ != 0) return CW_CANCELLED;
    if (has_deadline_ && std::chrono::steady_clock::now() >= deadline_) {
      return CW_DEADLINE_EXCEEDED;
    }
    return CW_OK;
  }

  Failure Check() const {
    switch (Code()) {
      case CW_CANCELLED:
        return {CW_CANCELLED, "the client cancelled the request", {}};
      case CW_DEADLINE_EXCEEDED:
        return {CW_DEADLINE_EXCEEDED,
                "the deadline passed before the batch was corrected",
                {}};
      default:
        return {};
    }
  }

 private:
  const volatile int32_t* const stop_;
  bool has_deadline_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_CANCELLATION_H_
