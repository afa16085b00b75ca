// Time per token of the CPU backend, by method, instruction set and length of
// sequences, against memcpy. README.md has the table of a run; names are
// METHOD/INSTRUCTION_SET/TOKENS/LENGTH. The time is one thread's processor
// time, and of "2 threads" what the caller waits.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/methods.h"
#include "kernels/metrics.h"
#include "kernels/staleness.h"
#include "tests/benchmark/bench_batch.h"
#include "tests/benchmark/headline_spec.h"
#include "tests/benchmark/memcpy_bandwidth.h"

namespace counterweight::kernels {
namespace {

constexpr int kRepetitions = 5;
constexpr double kSecondsOfRepetition = 0.05;
constexpr int64_t kTokens = 1'000'000;
constexpr int32_t kVersions = 12;

// True if the method is measured without metrics too.
bool IsMeasuredWithoutMetrics(const std::string& name) {
  return name == "token_tis" || name == "token_tis_ppo_clip";
}

struct Subject {
  std::string name;
  CorrectionSpec spec;
  // Whether the tokens have versions, for staleness.
  bool versions = false;
  int threads = 1;
};

struct InstructionSet {
  const char* name;
  CpuIsa isa;
};

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects = {
      {"token_tis+3_rules", HeadlineSpec()},
      {"token_tis+3_rules+probabilities", HeadlineSpec()}};
  subjects.back().spec.peer_sums = true;
  subjects.push_back({"token_tis+3_rules, no metrics", HeadlineSpec()});
  subjects.back().spec.metrics = false;
  subjects.push_back(
      {"token_tis+3_rules+versions", HeadlineSpec(), /*versions=*/true});
  // One of each kind of work: no weight, each level, each bound, sequence
  // rules, advantages, prefixes; losses by token, with weights, by row.
  for (const char* name :
       {"none", "token_tis", "seq_tis", "icepop", "seq_mis", "geo_rs_token_tis",
        "k3_rs_token_tis", "opsm", "reinforce_pro", "ppo_clip",
        "token_tis_ppo_clip", "sapo", "gspo"}) {
    std::vector<ParameterViolation> violations;
    subjects.push_back({name, MakeSpec(*FindMethod(name), {}, &violations)});
    if (!IsMeasuredWithoutMetrics(name)) continue;
    subjects.push_back(
        {std::string(name) + ", no metrics", subjects.back().spec});
    subjects.back().spec.metrics = false;
  }
  return subjects;
}

std::vector<InstructionSet> InstructionSets() {
  std::vector<InstructionSet> present;
  for (const InstructionSet& set :
       {InstructionSet{"v3", CpuIsa::kV3}, InstructionSet{"v4", CpuIsa::kV4}}) {
    if (MakeCpuCorrector(1, set.isa) != nullptr) present.push_back(set);
  }
  if (present.empty()) present.push_back({"generic", CpuIsa::kGeneric});
  return present;
}

// Every version is that of a run of tokens, as engines give them that load new
// weights while they sample.
std::vector<int32_t> Versions(int64_t num_tokens) {
  constexpr int64_t kTokensOfVersion = 700;
  std::vector<int32_t> versions(static_cast<size_t>(num_tokens));
  for (size_t i = 0; i < versions.size(); ++i) {
    versions[i] = static_cast<int32_t>(i / kTokensOfVersion % kVersions);
  }
  return versions;
}

void Correct(benchmark::State& state, const Subject& subject, CpuIsa isa,
             int64_t num_tokens, int64_t length) {
  const CorrectionSpec& spec = subject.spec;
  const std::unique_ptr<Corrector> corrector =
      MakeCpuCorrector(subject.threads, isa);
  BenchBatch batch(spec, num_tokens, length);
  const std::vector<std::string> rule_names(static_cast<size_t>(spec.num_rules),
                                            "rule");
  const std::vector<int32_t> versions =
      Versions(subject.versions ? batch.num_positions() : 0);
  const PolicyVersions told = {
      .trained = kVersions, .of_positions = versions.data(), .came = true};
  const int64_t bytes = batch.bytes_per_token() * batch.num_positions();
  const double memcpy_bandwidth = MemcpyBandwidth();
  for (auto _ : state) {
    Batch view = batch.view();
    if (subject.versions) view.versions = &told;
    CorrectResult result = corrector->Correct(spec, view, batch.outputs());
    if (result.status != CorrectStatus::kOk ||
        result.sums.staleness.measured != (subject.versions ? 1 : 0)) {
      state.SkipWithError("not corrected");
      return;
    }
    benchmark::DoNotOptimize(Metrics(spec, rule_names, result.sums));
  }
  using benchmark::Counter;
  constexpr auto kRate = Counter::kIsIterationInvariantRate;
  const auto tokens = static_cast<double>(batch.num_positions());
  state.counters["ns_per_token"] =
      Counter(1e-9 * tokens, kRate | Counter::kInvert);
  state.counters["GB_per_s"] =
      Counter(1e-9 * static_cast<double>(bytes), kRate);
  state.counters["memcpy_GB_per_s"] = 1e-9 * memcpy_bandwidth;
  state.counters["of_memcpy"] =
      Counter(static_cast<double>(bytes) / memcpy_bandwidth, kRate);
  state.counters["bytes_per_token"] =
      static_cast<double>(batch.bytes_per_token());
}

void Register(const Subject& subject, const InstructionSet& set,
              int64_t num_tokens, int64_t length) {
  const std::string name = subject.name + "/" + set.name + "/" +
                           std::to_string(num_tokens) + "/" +
                           std::to_string(length);
  // The least of the repetitions counts: machines are shared.
  auto* run = benchmark::RegisterBenchmark(
      name.c_str(),
      [subject, set, num_tokens, length](benchmark::State& state) {
        Correct(state, subject, set.isa, num_tokens, length);
      });
  run->MinTime(kSecondsOfRepetition)
      ->Repetitions(kRepetitions)
      ->Unit(benchmark::kMillisecond);
  if (subject.threads == 1) {
    run->MeasureProcessCPUTime();
  } else {
    run->UseRealTime();
  }
}

int64_t FreeMemory() {
  return static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         sysconf(_SC_PAGESIZE);
}

void RegisterAll() {
  std::vector<Subject> subjects = Subjects();
  const Subject one = subjects.front();
  Subject two = one;
  two.name += ", 2 threads";
  two.threads = 2;
  subjects.push_back(two);
  for (const InstructionSet& set : InstructionSets()) {
    for (const Subject& subject : subjects) {
      for (const int64_t length : {100, 1'024, 10'000, 100'000, 1'000'000}) {
        Register(subject, set, kTokens, length);
      }
    }
    // 14 bytes in fact; the benchmark uses at most half of the free memory.
    constexpr int64_t kBytesPerToken = 2 * 14;
    for (const int64_t tokens : {100'000, 10'000'000, 64'000'000}) {
      if (tokens * kBytesPerToken > FreeMemory()) continue;
      Register(one, set, tokens, 1'024);
    }
    // A small batch; waking a thread is a part of its time.
    for (const Subject& subject : {one, two}) {
      Register(subject, set, 64 * 512, 512);
    }
  }
}

}  // namespace
}  // namespace counterweight::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  counterweight::kernels::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
