// Waiting in a test for what another thread does.
#ifndef COUNTERWEIGHT_TESTS_TESTING_EVENTUALLY_H_
#define COUNTERWEIGHT_TESTS_TESTING_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace counterweight {

// Returns true as soon as `condition()` is, false if it is not within two
// minutes: the test then fails at that line, before its runner stops it.
template <typename Condition>
[[nodiscard]] bool Eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace counterweight

#endif  // COUNTERWEIGHT_TESTS_TESTING_EVENTUALLY_H_
