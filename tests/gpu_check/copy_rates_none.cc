#include <cstring>
#include <vector>

#include "tests/gpu_check/copy_rates.h"

namespace counterweight::kernels {

Timing TimeDeviceCopy(int64_t bytes) {
  const std::vector<char> from(static_cast<size_t>(bytes), 1);
  std::vector<char> to(from.size());
  return Repeat([&] {
    const double start = Now();
    std::memcpy(to.data(), from.data(), from.size());
    return Now() - start;
  });
}

LinkRates MeasureLink(int64_t /*bytes*/, bool /*pinned*/) { return {}; }

}  // namespace counterweight::kernels
