// The drift between engine and trainer, from a random sample of rows and with
// an interval.
//
// A row has n tokens and K = sum of k3(o - q), o the trainer's log-probs before
// any update, q the engine's. The mean of a token is R = sum K / sum n, a ratio
// estimate (W. Cochran, Sampling Techniques, 1977, chapter 6) with the standard
// error s = sqrt(m v) / sum n, v = sum (K - R n)^2 / (m - 1) over m rows. The
// interval R exp(-2.2 s / R) to R exp(2.2 s / R) is one of the logarithm,
// because K is skewed.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_AUDIT_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_AUDIT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/batch.h"

namespace counterweight::kernels::doctor {

// Rows that an interval needs. Of nine steps of a small run it holds the step's
// R in 87 to 95 of 100 samples of 32 rows, 91 to 96 of 64 rows, and 85 to 93 of
// 16; where few rows have most of the drift, in less.
inline constexpr int64_t kFewestAuditedRows = 32;
// The interval of a mean that is known: within a tenth.
inline constexpr double kKnown = 0.1;

// Sums over audited rows with tokens. Those of several batches add up number by
// number, without an error, for kMostAddends (exact_sum.h) vectors at most.
using AuditSums = std::vector<double>;  // kAuditNumbers
inline constexpr int kAuditNumbers = 34;

// Rows `audited`, ascending, of a batch in host memory; nullptr: all.
// `trained`: kOld, or kCurrent before the first update. Tokens of the mask with
// finite log-probs; their log ratio is clamped at 20 nats.
AuditSums SumsOfRows(const Batch& batch, InputRole trained,
                     const std::span<const int64_t>* audited);

// Adds sums of other batches, and makes room for any number of more.
void AddAuditSums(std::span<const double> from, AuditSums* to);

// True for sums of some batches: whole counts >= 0, and bins as small as such
// sums have.
bool AreAuditSums(std::span<const double> sums);

struct AuditedDrift {
  int64_t rows = 0;
  int64_t tokens = 0;
  double k3 = 0.0;  // nats, mean over tokens; NaN without any
  struct Interval {
    double low, high;
  };
  // From kFewestAuditedRows rows on.
  std::optional<Interval> interval;
  // Rows like these until the interval is within a tenth; 0: it is.
  int64_t more_rows = 0;
};

// REQUIRES: AreAuditSums.
AuditedDrift DriftOf(std::span<const double> sums);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_AUDIT_H_
