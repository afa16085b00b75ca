// gpu_check [--candidate=cuda|generic|v3|v4] [--quick|--edges]: compares the
// candidate with the CPU backend byte for byte, then times it. Exit status: 0
// all equal, 1 a difference, 2 no such candidate on this machine.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/methods.h"
#include "tests/gpu_check/cases.h"
#include "tests/gpu_check/compare.h"
#include "tests/gpu_check/copy_bandwidth.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/run.h"

namespace counterweight::kernels {
namespace {

std::unique_ptr<Corrector> MakeCandidate(const std::string& name,
                                         std::string* error) {
  if (name == "cuda") return MakeCudaCorrector(0, error);
  *error = "this machine has no such instruction set";
  if (name == "generic") return MakeCpuCorrector(1, CpuIsa::kGeneric);
  if (name == "v3") return MakeCpuCorrector(1, CpuIsa::kV3);
  if (name == "v4") return MakeCpuCorrector(1, CpuIsa::kV4);
  *error = "candidates are cuda, generic, v3 and v4";
  return nullptr;
}

// Number of cases that differ.
int Compare(Corrector& reference, Corrector& candidate, CheckSize size) {
  int compared = 0;
  int different = 0;
  uint64_t seed = 0;
  for (const std::vector<int64_t>& lengths : CheckShapes(size)) {
    const uint64_t rounds = size == CheckSize::kEdges   ? 1
                            : size == CheckSize::kQuick ? 2
                                                        : 4;
    for (uint64_t repetition = 0; repetition < rounds; ++repetition) {
      const uint64_t round = seed++;
      for (const CheckCase& c : CheckCases(lengths, round)) {
        const Corrected expected = RunCorrector(reference, c.spec, c.batch);
        const Corrected actual = RunCorrector(candidate, c.spec, c.batch);
        const std::string difference = FirstDifference(expected, actual);
        ++compared;
        if (difference.empty()) continue;
        ++different;
        std::printf("DIFFERS: %s, %zu rows, round %llu: %s\n", c.name.c_str(),
                    lengths.size(), static_cast<unsigned long long>(round),
                    difference.c_str());
      }
    }
    std::printf("compared %d cases, %d differ\n", compared, different);
    std::fflush(stdout);
  }
  return different;
}

// Bytes that a method must move at least: its inputs once, its outputs once.
int64_t BytesPerToken(const CorrectionSpec& spec) {
  int64_t bytes = 1;  // response mask
  for (int r = 0; r < kNumInputRoles; ++r) {
    bytes += (RequiredTensors(spec) >> r & 1u) != 0 ? 4 : 0;
  }
  const int64_t weight = spec.weight.level == Level::kNone ? 0 : 4;
  const int64_t gradient = spec.loss.surrogate == Surrogate::kNone ? 0 : 4;
  return bytes + weight + gradient + 1;
}

void Time(Corrector& candidate) {
  constexpr int64_t kTokens = int64_t{1} << 26;
  constexpr int64_t kLength = 4096;
  const double copy = CopyBandwidth(int64_t{1} << 30);
  std::printf("copy bandwidth of the device: %.1f GB/s\n", copy * 1e-9);
  std::printf("%-24s %12s %10s %8s\n", "method, 64 Mi tokens", "ns/token",
              "GB/s", "of copy");
  Random random(1);
  const std::vector<Row> one(1, RandomRow(random, kLength));
  const std::vector<Row> rows(kTokens / kLength, one[0]);
  const OwnedBatch batch(rows);
  std::vector<float> weights(kTokens);
  std::vector<float> gradient(kTokens);
  std::vector<uint8_t> keep(kTokens);
  for (const Method& method : Methods()) {
    std::vector<SpecViolation> violations;
    const CorrectionSpec spec = MakeSpec(method, {}, &violations);
    Outputs outputs;
    outputs.weights =
        spec.weight.level == Level::kNone ? nullptr : weights.data();
    outputs.gradient =
        spec.loss.surrogate == Surrogate::kNone ? nullptr : gradient.data();
    outputs.keep_mask = keep.data();
    double best = kUnbounded;
    constexpr int kRepetitions = 5;
    for (int i = 0; i < kRepetitions; ++i) {
      const CorrectResult result =
          candidate.Correct(spec, batch.view(), outputs);
      best = std::min(best, result.device_seconds);
    }
    const auto tokens = static_cast<double>(kTokens);
    const double rate =
        static_cast<double>(BytesPerToken(spec)) * tokens / best;
    std::printf("%-24s %12.4f %10.1f %7.1f%%\n",
                std::string(method.name).c_str(), best / tokens * 1e9,
                rate * 1e-9, 100.0 * rate / copy);
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  std::string name = "cuda";
  CheckSize size = CheckSize::kFull;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string prefix = "--candidate=";
    if (argument.rfind(prefix, 0) == 0) {
      name = argument.substr(prefix.size());
    } else if (argument == "--quick") {
      size = CheckSize::kQuick;
    } else if (argument == "--edges") {
      size = CheckSize::kEdges;
    } else {
      std::fprintf(stderr,
                   "gpu_check [--candidate=cuda|generic|v3|v4] "
                   "[--quick|--edges]\n");
      return 2;
    }
  }
  std::string error;
  const std::unique_ptr<Corrector> candidate = MakeCandidate(name, &error);
  if (candidate == nullptr) {
    std::fprintf(stderr, "gpu_check: no %s: %s\n", name.c_str(), error.c_str());
    return 2;
  }
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const std::unique_ptr<Corrector> reference =
      MakeCpuCorrector(static_cast<int>(cores));
  for (const DeviceInfo& device : candidate->Info().devices) {
    std::printf("device %d: %s\n", device.index, device.name.c_str());
  }
  std::printf("comparing %s with the CPU's %s, numerics version %u\n",
              name.c_str(), reference->Info().instruction_set.c_str(),
              kNumericsVersion);
  const int different = Compare(*reference, *candidate, size);
  if (different == 0 && name == "cuda" && size == CheckSize::kFull)
    Time(*candidate);
  std::printf("%s\n", different == 0 ? "all bytes equal" : "bytes differ");
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace counterweight::kernels

int main(int argc, char** argv) {
  return counterweight::kernels::Main(argc, argv);
}
