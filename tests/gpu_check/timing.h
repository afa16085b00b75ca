// Repeats a measurement until the numbers are stable.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_TIMING_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_TIMING_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace counterweight::kernels {

struct Timing {
  double best = 0.0;  // seconds
  double median = 0.0;
  int repetitions = 0;  // 0: it failed
};

inline double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The flag --repetitions: the most repetitions of one figure.
inline int most_repetitions = 30;

// `once` does the work and returns its seconds, negative if it failed. Two
// rounds to warm up (none for one repetition), then at least 5, at most
// `most_repetitions` and no more than `budget` seconds of them.
inline Timing Repeat(const std::function<double()>& once, double budget = 1.0) {
  const int warm_ups = std::min(2, most_repetitions - 1);
  constexpr int kLeast = 5;
  std::vector<double> seconds;
  const double start = Now();
  for (int i = -warm_ups; i < most_repetitions; ++i) {
    if (i >= kLeast && Now() - start > budget) break;
    const double one = once();
    if (one < 0.0) return {};
    if (i >= 0) seconds.push_back(one);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2],
          static_cast<int>(seconds.size())};
}

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_TIMING_H_
