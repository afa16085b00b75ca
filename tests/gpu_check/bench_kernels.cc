#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "tests/gpu_check/bench_parts.h"
#include "tests/gpu_check/bench_tensors.h"
#include "tests/gpu_check/json_line.h"
#include "tests/gpu_check/timing.h"
#include "tests/gpu_check/works.h"

namespace counterweight::kernels {
namespace {

constexpr int64_t kLength = BenchOptions{}.length;

// Seconds that the device computed in one correction; by the host's clock where
// there is no device. Negative: it failed. *call: of the whole call.
double Once(Corrector& corrector, const Work& work, const Batch& batch,
            const Outputs& outputs, double* call) {
  const double start = Now();
  const CorrectResult result = corrector.Correct(work.spec, batch, outputs);
  *call = Now() - start;
  if (result.status != CorrectStatus::kOk) {
    std::fprintf(stderr, "gpu_bench: %s: %s\n", work.name.c_str(),
                 result.status == CorrectStatus::kNonFinite
                     ? "a number is not finite"
                     : result.device_error.c_str());
    return -1.0;
  }
  return result.device_seconds > 0.0 ? result.device_seconds : *call;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class KernelTimes {
 public:
  KernelTimes(Candidate& candidate, const BenchTensors& tensors)
      : candidate_(candidate), tensors_(tensors) {}

  void Time(const char* table, const Work& work, int64_t tokens,
            int64_t length) {
    const BenchRows rows(tokens, length);
    const Batch batch = tensors_.batch(work, rows);
    const Outputs outputs = tensors_.outputs(work);
    std::vector<double> calls;
    const Timing timing = Repeat([&] {
      return Once(*candidate_.corrector, work, batch, outputs,
                  &calls.emplace_back());
    });
    if (timing.repetitions == 0) {
      ok_ = false;
      return;
    }
    JsonLine("kernel")
        .Text("table", table)
        .Text("work", work.name)
        .Count("tokens", rows.offsets.back())
        .Count("length", length)
        .Count("bytes_per_token", work.bytes())
        .Number("best", timing.best)
        .Number("median", timing.median)
        .Number("call", *std::min_element(calls.begin(), calls.end()))
        .Number("call_median", Median(calls))
        .Count("repetitions", timing.repetitions);
  }

  bool ok() const { return ok_; }

 private:
  Candidate& candidate_;
  const BenchTensors& tensors_;
  bool ok_ = true;
};

bool CannotHold(int64_t tokens) {
  std::fprintf(stderr, "gpu_bench: no memory for %lld tokens\n",
               static_cast<long long>(tokens));
  return false;
}

}  // namespace

bool TimeKernels(const BenchOptions& options, Candidate& candidate) {
  const std::unique_ptr<Memory> host =
      MakeFastestHostMemory(*candidate.corrector);
  const BenchTensors tensors(*candidate.memory, *host, options.most_tokens);
  if (!tensors.ok()) return CannotHold(options.most_tokens);
  KernelTimes times(candidate, tensors);
  const std::vector<Work> targets = TargetWorks();
  for (const Work& work : targets) {
    times.Time("methods", work, options.tokens, kLength);
  }
  for (int64_t length = 128; length <= 131'072; length *= 4) {
    for (const Work& work : targets) {
      times.Time("lengths", work, options.tokens, length);
    }
  }
  for (int64_t tokens = int64_t{1} << 16; tokens <= options.most_tokens;
       tokens *= 8) {
    for (const Work& work : targets) {
      times.Time("sizes", work, tokens, kLength);
    }
  }
  for (const Work& work : OtherWorks()) {
    times.Time("methods", work, options.tokens, kLength);
  }
  return times.ok();
}

bool TimeTargets(const BenchOptions& options, Candidate& candidate) {
  const BenchTensors tensors(*candidate.memory, *candidate.memory,
                             options.tokens);
  if (!tensors.ok()) return CannotHold(options.tokens);
  KernelTimes times(candidate, tensors);
  const std::vector<Work> targets = TargetWorks();
  for (const int64_t length : {int64_t{128}, int64_t{1024}, kLength}) {
    for (const Work& work : targets) {
      times.Time("targets", work, options.tokens, length);
    }
  }
  for (int64_t tokens = int64_t{1} << 13; tokens <= int64_t{1} << 17;
       tokens *= 4) {
    for (const Work& work : targets) {
      times.Time("micro", work, tokens, tokens / 8);
    }
  }
  return times.ok();
}

bool Profile(const BenchOptions& options, Candidate& candidate) {
  const std::unique_ptr<Memory> host =
      MakeFastestHostMemory(*candidate.corrector);
  const BenchTensors tensors(*candidate.memory, *host, options.tokens);
  if (!tensors.ok()) return CannotHold(options.tokens);
  const BenchRows rows(options.tokens, options.length);
  for (const Work& work : TargetWorks()) {
    if (work.name != options.work) continue;
    const Batch batch = tensors.batch(work, rows);
    const Outputs outputs = tensors.outputs(work);
    double call = 0.0;
    // The first warms up.
    return Once(*candidate.corrector, work, batch, outputs, &call) >= 0.0 &&
           Once(*candidate.corrector, work, batch, outputs, &call) >= 0.0;
  }
  std::fprintf(stderr, "gpu_bench: no work is called %s\n",
               options.work.c_str());
  return false;
}

}  // namespace counterweight::kernels
