#include "client/cpp/transport/retry.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>

namespace counterweight::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Pause after an UNAVAILABLE without a delay: no server listens, or the
// connection broke.
constexpr milliseconds kFirstPause{100};
// A longer delay of the server is kept.
constexpr milliseconds kLongestPause{5000};

// A random part of the pause is added, so that refused clients do not return
// all at once.
milliseconds Jitter(milliseconds pause) {
  thread_local std::minstd_rand random{std::random_device{}()};
  std::uniform_int_distribution<int64_t> extra(0, pause.count() / 4);
  return milliseconds(extra(random));
}

// False if a stop was requested.
bool Sleep(milliseconds pause, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, pause, [] { return false; });
  return !stop.stop_requested();
}

Status Cancelled() {
  return {.code = StatusCode::kCancelled, .message = "a stop was requested"};
}

}  // namespace

std::optional<milliseconds> PauseAfter(const Outcome& outcome, int failed) {
  const Status& status = outcome.status;
  if (outcome.admitted || outcome.retry_forbidden) return std::nullopt;
  milliseconds asked = kFirstPause;
  if (status.code == StatusCode::kResourceExhausted) {
    // A request beyond a limit has no delay, because waiting does not help it.
    if (!status.retry_after) return std::nullopt;
    asked = *status.retry_after;
  } else if (status.code == StatusCode::kUnavailable ||
             status.code == StatusCode::kCancelled) {
    asked = status.retry_after.value_or(kFirstPause);
  } else {
    return std::nullopt;
  }
  milliseconds grown = std::min(asked, kLongestPause);
  for (int i = 1; i < failed && grown < kLongestPause; ++i) grown *= 2;
  return std::max(asked, std::min(grown, kLongestPause));
}

Status Retry(int max_attempts, steady_clock::time_point deadline,
             const std::stop_token& stop,
             const std::function<Outcome()>& attempt, int* attempts) {
  int cancelled = 0;
  for (*attempts = 1;; ++*attempts) {
    if (stop.stop_requested()) return Cancelled();
    Outcome outcome = attempt();
    if (outcome.status.ok() || *attempts >= max_attempts) return outcome.status;
    if (outcome.status.code == StatusCode::kCancelled &&
        (++cancelled > 1 || stop.stop_requested())) {
      return outcome.status;
    }
    const auto pause = PauseAfter(outcome, *attempts);
    if (!pause) return outcome.status;
    const milliseconds whole = *pause + Jitter(*pause);
    if (whole >= deadline - steady_clock::now()) return outcome.status;
    if (!Sleep(whole, stop)) return Cancelled();
  }
}

}  // namespace counterweight::client
