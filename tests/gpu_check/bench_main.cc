// gpu_bench PART [--candidate=cuda|generic|v3|v4] [--tokens=N] [--most=N]
// [--work=NAME] [--length=N] [--repetitions=N]: PART is copies, kernels,
// targets, requests or profile (see bench_parts.h). Exit status: 0 all
// measured, 1 something was not, 2 no such candidate on this machine.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/gpu_check/bench_parts.h"
#include "tests/gpu_check/timing.h"

namespace counterweight::kernels {
namespace {

bool Parse(int argc, char** argv, BenchOptions* options) {
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) return false;
    const std::string name = argument.substr(0, equals);
    const std::string value = argument.substr(equals + 1);
    if (name == "--candidate") {
      options->candidate = value;
    } else if (name == "--tokens") {
      options->tokens = std::atoll(value.c_str());
    } else if (name == "--most") {
      options->most_tokens = std::atoll(value.c_str());
    } else if (name == "--work") {
      options->work = value;
    } else if (name == "--length") {
      options->length = std::atoll(value.c_str());
    } else if (name == "--repetitions") {
      most_repetitions = std::atoi(value.c_str());
    } else {
      return false;
    }
  }
  // Rows of the longest length must fit.
  constexpr int64_t kLeastTokens = int64_t{1} << 17;
  options->most_tokens = std::max(options->most_tokens, options->tokens);
  return options->tokens >= kLeastTokens && options->length > 0 &&
         most_repetitions > 0;
}

int Main(int argc, char** argv) {
  BenchOptions options;
  const std::string part = argc > 1 ? argv[1] : "";
  const bool known = part == "copies" || part == "kernels" ||
                     part == "targets" || part == "requests" ||
                     part == "profile";
  if (!known || !Parse(argc, argv, &options)) {
    std::fprintf(stderr,
                 "gpu_bench copies|kernels|targets|requests|profile "
                 "[--candidate=cuda|generic|v3|v4] [--tokens=N, at least "
                 "131072] [--most=N] [--work=NAME] "
                 "[--length=N] [--repetitions=N]\n");
    return 2;
  }
  std::string error;
  Candidate candidate = MakeCandidate(options.candidate, &error);
  if (candidate.corrector == nullptr) {
    std::fprintf(stderr, "gpu_bench: no %s: %s\n", options.candidate.c_str(),
                 error.c_str());
    return 2;
  }
  bool ok = false;
  if (part == "copies") ok = MeasureCopies(options);
  if (part == "targets") ok = TimeTargets(options, candidate);
  if (part == "kernels") ok = TimeKernels(options, candidate);
  if (part == "requests") ok = TimeRequests(options, candidate);
  if (part == "profile") ok = Profile(options, candidate);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace counterweight::kernels

int main(int argc, char** argv) {
  return counterweight::kernels::Main(argc, argv);
}
