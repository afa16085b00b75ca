// What gpu_check runs: every method, every surrogate and many random specs with
// and without a loss, over shapes that hit every edge of the walk.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_CASES_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/spec.h"
#include "tests/testing/batch_builder.h"

namespace counterweight::kernels {

struct CheckCase {
  std::string name;
  CorrectionSpec spec;
  OwnedBatch batch;
};

// kEdges: tile and segment edges only. kQuick: also long and many rows. kFull:
// also the largest.
enum class CheckSize : uint8_t { kEdges, kQuick, kFull };

// Lengths of the rows of each shape: one token to a million, empty rows, many
// rows.
std::vector<std::vector<int64_t>> CheckShapes(CheckSize size);

// All specs of round `round` for one shape; fixed seeds.
std::vector<CheckCase> CheckCases(const std::vector<int64_t>& lengths,
                                  uint64_t round);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_CASES_H_
