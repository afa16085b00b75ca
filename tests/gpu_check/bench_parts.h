// The parts of gpu_bench. Each prints JSON lines; tests/benchmark/gpu_table.py
// makes tables of them.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_BENCH_PARTS_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_BENCH_PARTS_H_

#include <cstdint>
#include <string>

#include "tests/gpu_check/candidate.h"

namespace counterweight::kernels {

struct BenchOptions {
  std::string candidate = "cuda";
  int64_t tokens = int64_t{1} << 26;
  // The largest batch of the table by size.
  int64_t most_tokens = int64_t{1} << 28;
  std::string work = "token_tis";  // for Profile()
  // Rows' length, if neither length nor size varies, and for Profile().
  int64_t length = 4096;
};

// All are false, with a line on stderr, if something could not be measured.

// The device's copy bandwidth; the link's rates, pinned and not.
bool MeasureCopies(const BenchOptions& options);

// Kernel time of batches that lie on the device: every method, then the works
// of the targets by length of the rows and by size of the batch.
bool TimeKernels(const BenchOptions& options, Candidate& candidate);

// The works of the targets alone, with their masks on the device as a trainer
// has them: rows of three lengths, and micro-batches of eight rows.
bool TimeTargets(const BenchOptions& options, Candidate& candidate);

// Correct() from and to the host's memory, by the host's clock; many requests
// at once, and a small one beside a large one.
bool TimeRequests(const BenchOptions& options, Candidate& candidate);

// options.work twice on a resident batch, for profilers.
bool Profile(const BenchOptions& options, Candidate& candidate);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_BENCH_PARTS_H_
