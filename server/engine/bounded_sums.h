// Sums of a batch as its histograms bound them, so that one token far out, or a
// forged sum, moves a total by no more than the batch's tokens may.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_BOUNDED_SUMS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_BOUNDED_SUMS_H_

#include <cstdint>

#include "kernels/sums.h"
#include "server/engine/published_sums.h"

namespace counterweight::server {

// Staleness above this counts as this, in versions.
inline constexpr double kMostStaleness = 1024;

// Log ratios by kernels::kHistogramEdges.
using LogRatioHistogram = int64_t[kernels::kNumHistogramEdges + 1];

// `sum`, of log ratios with that histogram; where it is more than they can
// have, each clamped at 20 nats on either side, the nearest that they can. Of
// sequences the same, with their mean log ratios.
double BoundedLogRatio(double sum, const LogRatioHistogram& histogram);

// The same of a sum of exp(l) - 1 - l, and of one over a known number of
// tokens.
double BoundedK3(double sum, const LogRatioHistogram& histogram);
double BoundedK3(double sum, int64_t tokens);

// The same of a sum of exp(-m) over sequences with mean log ratios m.
double BoundedPplRatio(double sum, const LogRatioHistogram& histogram);

// False if the sums of log ratios and of exp(l) - 1 - l are none that tokens
// with that histogram have; its first and last buckets have no outer edge.
bool MayHaveLogRatio(double sum, const LogRatioHistogram& histogram);
bool MayHaveK3(double sum, const LogRatioHistogram& histogram);

// The sum of staleness, each at most kMostStaleness.
double BoundedStaleness(const PublishedSums::Staleness& staleness);

// A sum that has no histogram, at most 1e30, so that its square is finite and
// no rate is infinite; NaN stays.
double Finite(double sum);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_BOUNDED_SUMS_H_
