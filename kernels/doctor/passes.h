// The doctor's loops over tokens, compiled once per instruction set with the
// same bits: plain pointers and PODs, as in kernels/cpu/isa_kernels.h.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_PASSES_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_PASSES_H_

#include <cstdint>

#include "kernels/doctor/drift_columns.h"

namespace counterweight::kernels::doctor {

inline constexpr int kMostStreams = 3;

// Arrays of the passes have room for a multiple of it, and one more element
// before the first.
inline constexpr int64_t kPassLanes = 16;

// Positions of one call of count().
inline constexpr int64_t kMostCounted = 4096;

// Facts over the tokens of the mask that have finite log-probs alone.
struct StreamCounts {
  int64_t zero;       // 0 of either sign
  int64_t minus_one;  // -1, which may be a filler
  float smallest;     // 0 if none is below
  float largest;      // 0 if none is above
};

struct Counts {
  int64_t tokens;
  // Tokens of the mask with a log-prob that is NaN or infinite.
  int64_t non_finite;
  StreamCounts streams[kMostStreams];
  // Equal bits, zeros of both signs included: of streams 0 and 1, 1 and 2, 0
  // and 2.
  int64_t equal[kMostStreams];
};

// Sums over pairs (x, y) of one token, d = y - x; capped: min(|.|, 4).
enum PairSum : int {
  kCapped,
  // Over neighbours of one row.
  kPairs,
  kCappedPairs,  // d of both, halved
  kEarly,        // y of the next token - x
  kLate,         // y - x of the next token
  // Repairs.
  kXLog10,
  kXLog2,
  kYLog10,
  kYLog2,
  kXCumulative,
  kYCumulative,
  kXX,
  kYY,
  // u = e^d - 1, v = e^-d - 1 with |d| at most 20.
  kAbsolute,
  kUp,  // of d above 0
  kU,
  kUU,
  kV,
  kVV,
  kK3,
  // Logits log(p / (1 - p)), at most 12, where both x and y are in (-20, 0).
  kLogits,
  kLogitX,
  kLogitY,
  kLogitXX,
  kLogitYY,
  kLogitXY,
  kNumPairSums
};

// x, y, link: [n], n a multiple of kPassLanes; link[i] is 1 if tokens i and i +
// 1 are of one row, otherwise 0. weight: 1, or 0 for what fills up.
struct PairInput {
  const float* x;
  const float* y;
  const float* link;
  const float* weight;
  int64_t n;
};

struct Passes {
  const char* name;
  // Adds to *counts. streams[i] is null if the tensor was not sent; n is a
  // multiple of kPassLanes, at most kMostCounted.
  void (*count)(const float* const* streams, const uint8_t* mask, int64_t n,
                Counts* counts);
  // Sets sums[kNumPairSums].
  void (*sum_pairs)(const PairInput& input, double* sums);
  // Sets those up to kYY, in half of the time.
  void (*sum_repairs)(const PairInput& input, double* sums);
  // Sets *totals, and k3 of each row. Rows have at least one token.
  void (*sum_drift)(const DriftInput& input, DriftTotals* totals);
  // Writes e^x and e^x - 1 of each number. All are [n].
  void (*exponentials)(const double* x, int64_t n, double* exp, double* expm1);
  // Writes the natural logarithm of each number (log64).
  void (*logarithms)(const double* x, int64_t n, double* log);
};

const Passes* GenericPasses();
// Null if the build lacks the instruction set.
const Passes* V3Passes();
const Passes* V4Passes();

// Those of the best instruction set that this machine has.
const Passes& BestPasses();

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_PASSES_H_
