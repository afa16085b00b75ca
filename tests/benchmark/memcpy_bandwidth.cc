#include "tests/benchmark/memcpy_bandwidth.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <vector>

namespace counterweight::kernels {
namespace {

constexpr int kTries = 9;
// Exceeds the caches.
constexpr size_t kBytes = size_t{1} << 28;

double ProcessSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

double Measure() {
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const double start = ProcessSeconds();
    std::memcpy(to.data(), from.data(), kBytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
    const double seconds = ProcessSeconds() - start;
    best = std::max(best, 2.0 * static_cast<double>(kBytes) / seconds);
  }
  return best;
}

}  // namespace

double MemcpyBandwidth() {
  static const double measured = Measure();
  return measured;
}

}  // namespace counterweight::kernels
