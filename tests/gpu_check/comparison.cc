#include "tests/gpu_check/comparison.h"

#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>

#include "tests/gpu_check/case_runs.h"
#include "tests/gpu_check/compare.h"

namespace counterweight::kernels {
namespace {

constexpr int kMaxPrinted = 40;
// Cases of larger batches have one dtype, and run whole and in one other way,
// in turns.
constexpr int64_t kMaxPositionsOfAll = 200'000;

std::string Describe(const std::vector<int64_t>& lengths, uint64_t round) {
  return std::to_string(lengths.size()) + " rows, the first of " +
         std::to_string(lengths.front()) + ", round " + std::to_string(round);
}

}  // namespace

void Comparison::Count(const CheckCase& c, const std::string& where,
                       const std::string& difference) {
  ++compared_;
  if (difference.empty()) return;
  if (++different_ > kMaxPrinted) return;
  std::printf("DIFFERS: %s, %s: %s\n", c.name.c_str(), where.c_str(),
              difference.c_str());
}

void Comparison::Compare(const CheckCase& c, const std::string& where,
                         uint64_t index) {
  const Corrected expected = RunWhole(reference_, c);
  Count(c, where, FirstDifference(expected, RunWhole(candidate_, c)));
  const bool all = c.batch->num_positions() <= kMaxPositionsOfAll;
  if (all || index % 2 == 0) {
    Count(c, where + ", in pieces",
          FirstDifference(expected, RunInPieces(candidate_, c, index)));
  }
  if (all || index % 2 == 1) {
    const auto misalignment = static_cast<int64_t>(index / 2 % 4);
    Count(c, where + ", resident",
          FirstDifference(expected,
                          RunResident(candidate_, c, memory_, misalignment)));
  }
}

void Comparison::Run(CheckSize size, int sample) {
  const auto start = std::chrono::steady_clock::now();
  uint64_t index = 0;
  for (const std::vector<int64_t>& lengths : CheckShapes(size)) {
    for (uint64_t round = 0; round < kRoundsOfDTypes; ++round) {
      uint64_t of_round = 0;
      for (const CheckCase& c : CheckCases(lengths, round)) {
        const bool large = c.batch->num_positions() > kMaxPositionsOfAll;
        const bool has_turn = !large || of_round % kRoundsOfDTypes == round;
        ++of_round;
        if (!has_turn || ++index % static_cast<uint64_t>(sample) != 0) continue;
        Compare(c, Describe(lengths, round), index);
      }
    }
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    std::printf("%s: compared %d, %d differ, %.0f s\n",
                Describe(lengths, kRoundsOfDTypes - 1).c_str(), compared_,
                different_, elapsed.count());
    std::fflush(stdout);
  }
}

void Comparison::RunConcurrently(int threads, int sample) {
  const std::vector<int64_t> lengths = {4095, 0, 4097, 8193, 1, 20'000};
  std::vector<CheckCase> cases;
  int index = 0;
  for (const CheckCase& c : CheckCases(lengths, 1)) {
    if (++index % sample == 0) cases.push_back(c);
  }
  std::vector<Corrected> expected;
  for (const CheckCase& c : cases) expected.push_back(RunWhole(reference_, c));
  std::mutex mutex;
  const auto work = [&](size_t first) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const size_t at = (first + i) % cases.size();
      const CheckCase& c = cases[at];
      const std::string difference = FirstDifference(
          expected[at], i % 2 == 0 ? RunWhole(candidate_, c)
                                   : RunInPieces(candidate_, c, at));
      const std::lock_guard lock(mutex);
      Count(c, "beside other requests", difference);
    }
  };
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back(work, static_cast<size_t>(t) * cases.size() /
                                   static_cast<size_t>(threads));
  }
  for (std::thread& thread : running) thread.join();
  std::printf("%d threads at once: compared %d, %d differ\n", threads,
              compared_, different_);
  std::fflush(stdout);
}

}  // namespace counterweight::kernels
