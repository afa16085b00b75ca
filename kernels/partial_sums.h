// The sums of a batch as a value, before they are rounded: those of the parts
// of a step, however it is cut, add up to those of one batch of all rows, in
// any order and bit for bit.
#ifndef COUNTERWEIGHT_KERNELS_PARTIAL_SUMS_H_
#define COUNTERWEIGHT_KERNELS_PARTIAL_SUMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/spec.h"
#include "kernels/sums.h"

namespace counterweight::kernels {

// `whole`, `narrow` and `wide` add up number by number, and of `maxima` each
// number's largest counts: any all-reduce of SUM and of MAX merges parts, of
// kMostAddends (exact_sum.h) vectors at most. Sizes depend on the method alone.
struct PartialSums {
  // PartialWhole, then counts.
  std::vector<double> whole;
  // kBins of each sum, for addends below kMostNarrow; larger ones of a row
  // count as infinite.
  std::vector<double> narrow;
  // kAllBins of each sum of rows that may be larger.
  std::vector<double> wide;
  // Agreed, each with its negative, then -minima and maxima.
  std::vector<double> maxima;

  bool operator==(const PartialSums&) const = default;
};

enum PartialWhole : int {
  kPartialVectors,    // vectors that were added since the last Settle()
  kPartialParts,      // batches
  kPartialSequences,  // their rows, empty ones too
  // Batches with a loss that depends on the batch's other rows: it divides by
  // the batch's own counts, for example. Losses of several do not add up.
  kPartialCoupled,
  kNumPartialWhole
};

// Values that all parts share. Whole numbers, but for the last two.
enum class Agreed : uint8_t {
  kMethod,  // for the caller to say, like the next two
  kFacts,
  kWidth,
  kNumWhole,    // size of `whole`
  kNumNarrow,   // size of `narrow`
  kVersions,    // 1: with sums by staleness
  kLossCount,   // LossSums::count
  kWeightMean,  // WeightSpec::given_mean
};
inline constexpr int kNumAgreed = static_cast<int>(Agreed::kWeightMean) + 1;

void SetAgreed(Agreed what, double value, PartialSums* sums);
// Empty if parts differ.
std::optional<double> AgreedOn(const PartialSums& sums, Agreed what);

// True if the two have the same sizes.
bool HaveSameSizes(const PartialSums& a, const PartialSums& b);

// Gives equal sums equal bytes, and makes room for more additions.
void Settle(PartialSums* sums);

// Adds those of other rows, and settles. REQUIRES: HaveSameSizes().
void Merge(const PartialSums& part, PartialSums* sums);

// The sums of no row, of a method's sizes.
PartialSums NoSums(const CorrectionSpec& spec, bool has_versions);

// The sums of one batch of all rows. spec: but for the counts that the loss
// divided by. REQUIRES: `partial` has the sizes of NoSums(), and is settled.
BatchSums SumsOf(const CorrectionSpec& spec, const PartialSums& partial);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_PARTIAL_SUMS_H_
