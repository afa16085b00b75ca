// The cases of gpu_check: every method, every value of every axis of one, and
// many random specs, over shapes that reach every boundary of the walk.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_CASES_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_CASES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/spec.h"
#include "tests/testing/batch_builder.h"

namespace counterweight::kernels {

// The outputs that a caller selects: kernels may differ by them.
enum class WantedOutputs : uint8_t {
  kAll,
  kUsual,  // no reasons
  kSums,
  // One output and the sums.
  kWeights,
  kKeepMask,
  kTokenReasons,
  kSequenceReasons,
  kGradient,
};
inline constexpr int kNumWantedOutputs = 8;

struct CheckCase {
  std::string name;
  CorrectionSpec spec;
  std::shared_ptr<const OwnedBatch> batch;
  WantedOutputs wanted = WantedOutputs::kAll;
};

// kSegments: rows of several segments only. kEdges: tile and segment edges
// only. kQuick: also long and many rows. kFull:
// also a row of a million tokens and a hundred thousand rows.
enum class CheckSize : uint8_t { kSegments, kEdges, kQuick, kFull };

// Lengths of the rows of each shape: one token to a million, empty rows, many
// rows.
std::vector<std::vector<int64_t>> CheckShapes(CheckSize size);

// Rounds of CheckCases() after which every dtype has had its turn.
inline constexpr uint64_t kRoundsOfDTypes = 3;

// All cases of one shape in round `round`, with the round's dtype; fixed seeds.
// Masked positions hold NaN and infinities in most, counted ones in
// some, under every policy.
std::vector<CheckCase> CheckCases(const std::vector<int64_t>& lengths,
                                  uint64_t round);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_CASES_H_
