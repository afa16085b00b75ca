#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "tests/gpu_check/bench_parts.h"
#include "tests/gpu_check/bench_tensors.h"
#include "tests/gpu_check/json_line.h"
#include "tests/gpu_check/timing.h"
#include "tests/gpu_check/works.h"

namespace counterweight::kernels {
namespace {

constexpr int64_t kRequestLength = 4096;
constexpr int64_t kSmallTokens = 64 * 512;
constexpr int64_t kSmallLength = 512;

// A request again and again, in memory of its own.
class Requests {
 public:
  Requests(Corrector& corrector, Memory& memory, Work work, int64_t tokens,
           int64_t length)
      : corrector_(corrector),
        work_(std::move(work)),
        tensors_(memory, memory, tokens),
        rows_(tokens, length) {}

  bool ok() const { return tensors_.ok(); }
  const Work& work() const { return work_; }
  int64_t tokens() const { return rows_.offsets.back(); }

  // Seconds by the host's clock, negative if it failed.
  double Send() {
    const double start = Now();
    const CorrectResult result = corrector_.Correct(
        work_.spec, tensors_.batch(work_, rows_), tensors_.outputs(work_));
    if (result.status == CorrectStatus::kOk) return Now() - start;
    std::fprintf(stderr, "gpu_bench: %s: %s\n", work_.name.c_str(),
                 result.device_error.c_str());
    return -1.0;
  }

 private:
  Corrector& corrector_;
  Work work_;
  BenchTensors tensors_;
  BenchRows rows_;
};

bool TimeAlone(const char* memory_name, Requests& requests) {
  const Timing timing = Repeat([&] { return requests.Send(); }, 2.0);
  if (timing.repetitions == 0) return false;
  JsonLine("request")
      .Text("memory", memory_name)
      .Text("work", requests.work().name)
      .Count("tokens", requests.tokens())
      .Count("up_bytes", requests.tokens() * requests.work().input_bytes())
      .Count("down_bytes", requests.tokens() * requests.work().output_bytes())
      .Number("best", timing.best)
      .Number("median", timing.median);
  return true;
}

// The same work in so many threads, against one after the other.
bool TimeTogether(Candidate& candidate, Memory& memory, int64_t tokens) {
  constexpr int kThreads = 4;
  const int rounds = std::min(5, most_repetitions);
  const Work work = TargetWorks().front();
  std::vector<std::unique_ptr<Requests>> requests;
  for (int t = 0; t < kThreads; ++t) {
    requests.push_back(std::make_unique<Requests>(
        *candidate.corrector, memory, work, tokens / kThreads, kRequestLength));
    if (!requests.back()->ok()) return false;
  }
  const Timing alone = Repeat([&] { return requests.front()->Send(); });
  if (alone.repetitions == 0) return false;
  std::atomic<bool> ok = true;
  const double start = Now();
  std::vector<std::thread> threads;
  for (auto& own : requests) {
    threads.emplace_back([&own, &ok, rounds] {
      for (int i = 0; i < rounds; ++i) ok = own->Send() >= 0.0 && ok;
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double together = (Now() - start) / rounds;
  if (!ok) return false;
  JsonLine("together")
      .Text("work", work.name)
      .Count("threads", kThreads)
      .Count("tokens", requests.front()->tokens())
      .Number("alone", alone.median)
      .Number("together", together);
  return true;
}

// How long a small request takes beside a large one that never pauses.
bool TimeFairness(Candidate& candidate, Memory& memory, int64_t tokens) {
  const Work work = TargetWorks().front();
  Requests small(*candidate.corrector, memory, work, kSmallTokens,
                 kSmallLength);
  Requests large(*candidate.corrector, memory, work, tokens, kRequestLength);
  if (!small.ok() || !large.ok()) return false;
  const Timing large_alone = Repeat([&] { return large.Send(); });
  const Timing alone = Repeat([&] { return small.Send(); });
  std::atomic<bool> stop = false;
  std::atomic<bool> runs = true;
  std::thread other([&] {
    while (!stop && runs) runs = large.Send() >= 0.0;
  });
  const Timing beside = Repeat([&] { return small.Send(); }, 3.0);
  stop = true;
  other.join();
  if (!runs || large_alone.repetitions == 0 || alone.repetitions == 0 ||
      beside.repetitions == 0) {
    return false;
  }
  JsonLine("fairness")
      .Text("work", work.name)
      .Count("small_tokens", small.tokens())
      .Count("large_tokens", large.tokens())
      .Number("large_alone", large_alone.median)
      .Number("small_alone", alone.median)
      .Number("small_beside", beside.median);
  return true;
}

}  // namespace

bool TimeRequests(const BenchOptions& options, Candidate& candidate) {
  bool ok = true;
  const std::unique_ptr<Memory> pinned = MakePinnedMemory(*candidate.corrector);
  const std::unique_ptr<Memory> pageable = MakeHostMemory();
  for (const Work& work : TargetWorks()) {
    const auto time = [&](const char* name, Memory& memory) {
      Requests requests(*candidate.corrector, memory, work, options.tokens,
                        kRequestLength);
      if (!requests.ok()) {
        std::fprintf(stderr, "gpu_bench: no %s memory\n", name);
        // Only a device needs pinned memory.
        return options.candidate != "cuda";
      }
      return TimeAlone(name, requests);
    };
    ok = time("pinned", *pinned) && ok;
    ok = time("pageable", *pageable) && ok;
  }
  const std::unique_ptr<Memory> fastest =
      MakeFastestHostMemory(*candidate.corrector);
  ok = TimeTogether(candidate, *fastest, options.tokens) && ok;
  return TimeFairness(candidate, *fastest, options.tokens) && ok;
}

}  // namespace counterweight::kernels
