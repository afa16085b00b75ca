// gpu_check [--candidate=cuda|cuda_arrays|generic|v3|v4]
// [--quick|--edges|--segments] [--sample=N] [--threads=N] [--digests=FILE]:
// compares the candidate with the CPU backend byte for byte, or writes digests
// of its answers to compare with another machine's. Exit status: 0 all equal or
// written, 1 a difference or a file that cannot be written, 2 no such candidate
// on this machine.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "kernels/corrector.h"
#include "tests/gpu_check/candidate.h"
#include "tests/gpu_check/comparison.h"
#include "tests/gpu_check/digests.h"

namespace counterweight::kernels {
namespace {

struct Options {
  std::string candidate = "cuda";
  CheckSize size = CheckSize::kFull;
  int sample = 1;   // compares every so many-th case
  int threads = 8;  // 0: no concurrent requests
  std::string digests;
};

// True, with the rest in *value, if `argument` begins with `name` and =.
bool Takes(const std::string& argument, const std::string& name,
           std::string* value) {
  if (argument.rfind(name + "=", 0) != 0) return false;
  *value = argument.substr(name.size() + 1);
  return true;
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    std::string value;
    if (Takes(argument, "--candidate", &value)) {
      options->candidate = value;
    } else if (Takes(argument, "--sample", &value)) {
      options->sample = std::atoi(value.c_str());
    } else if (Takes(argument, "--threads", &value)) {
      options->threads = std::atoi(value.c_str());
    } else if (Takes(argument, "--digests", &value)) {
      options->digests = value;
    } else if (argument == "--quick") {
      options->size = CheckSize::kQuick;
    } else if (argument == "--segments") {
      options->size = CheckSize::kSegments;
    } else if (argument == "--edges") {
      options->size = CheckSize::kEdges;
    } else {
      return false;
    }
  }
  return options->sample > 0 && options->threads >= 0;
}

int Write(const Options& options, Corrector& corrector) {
  std::FILE* file = std::fopen(options.digests.c_str(), "w");
  const int lines = file == nullptr ? -1
                                    : WriteDigests(corrector, options.size,
                                                   options.sample, file);
  if (file != nullptr) std::fclose(file);
  if (lines < 0) {
    std::fprintf(stderr, "gpu_check: cannot write %s\n",
                 options.digests.c_str());
    return 1;
  }
  std::printf("%s: %d digests of %s's answers, numerics version %u\n",
              options.digests.c_str(), lines, options.candidate.c_str(),
              kNumericsVersion);
  return 0;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    std::fprintf(stderr,
                 "gpu_check [--candidate=cuda|generic|v3|v4] "
                 "[--quick|--edges|--segments] [--sample=N] [--threads=N] "
                 "[--digests=FILE]\n");
    return 2;
  }
  std::string error;
  const Candidate candidate = MakeCandidate(options.candidate, &error);
  if (candidate.corrector == nullptr) {
    std::fprintf(stderr, "gpu_check: no %s: %s\n", options.candidate.c_str(),
                 error.c_str());
    return 2;
  }
  if (!options.digests.empty()) return Write(options, *candidate.corrector);
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const std::unique_ptr<Corrector> reference =
      MakeCpuCorrector(static_cast<int>(cores));
  for (const DeviceInfo& device : candidate.corrector->Info().devices) {
    std::printf("device %d: %s\n", device.index, device.name.c_str());
  }
  std::printf("comparing %s with the CPU's %s, numerics version %u\n",
              options.candidate.c_str(),
              reference->Info().instruction_set.c_str(), kNumericsVersion);
  Comparison comparison(*reference, *candidate.corrector, *candidate.memory);
  comparison.Run(options.size, options.sample);
  if (options.threads > 0) {
    comparison.RunConcurrently(options.threads, options.sample);
  }
  std::printf("compared %d, %d differ: %s\n", comparison.compared(),
              comparison.different(),
              comparison.different() == 0 ? "all bytes equal" : "bytes differ");
  return comparison.different() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace counterweight::kernels

int main(int argc, char** argv) {
  return counterweight::kernels::Main(argc, argv);
}
