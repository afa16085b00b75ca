#include <cstdio>

#include "tests/gpu_check/bench_parts.h"
#include "tests/gpu_check/copy_rates.h"
#include "tests/gpu_check/json_line.h"

namespace counterweight::kernels {

bool MeasureCopies(const BenchOptions& options) {
  // As many bytes as token_tis moves.
  const int64_t bytes = options.tokens * 7;
  const Timing copy = TimeDeviceCopy(bytes);
  if (copy.repetitions == 0) {
    std::fprintf(stderr, "gpu_bench: the device could not copy %lld bytes\n",
                 static_cast<long long>(bytes));
    return false;
  }
  const double moved = 2.0 * static_cast<double>(bytes);
  JsonLine("copy")
      .Count("bytes", bytes)
      .Number("best", moved / copy.best)
      .Number("median", moved / copy.median);
  for (const bool pinned : {true, false}) {
    const LinkRates rates = MeasureLink(bytes, pinned);
    JsonLine("link")
        .Text("memory", pinned ? "pinned" : "pageable")
        .Count("bytes", bytes)
        .Number("up", rates.up)
        .Number("down", rates.down)
        .Number("both", rates.both);
  }
  return true;
}

}  // namespace counterweight::kernels
