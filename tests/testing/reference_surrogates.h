// The reference's surrogates, one token at a time. V is written twice: as a
// value, for finite differences, and as a slope worked out by hand.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_SURROGATES_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_SURROGATES_H_

#include "kernels/loss_spec.h"
#include "tests/testing/reference_rules.h"

namespace counterweight::kernels {

// A token as a surrogate sees it.
struct LossPoint {
  double advantage = 0.0;
  double log_prob = 0.0;     // current
  double denominator = 0.0;  // the log-prob that current is compared with
  double log_ratio = 0.0;    // l of the token or of its row, clamped
  bool selected = false;     // by its covariance
};

// V of a token that moves from `fixed` to `live`; what a surrogate detaches
// stays at `fixed`. Not for GEO_MEAN and VESPO, which belong to rows.
double SurrogateValue(const LossSpec& loss, const LossPoint& live,
                      const LossPoint& fixed);

// LossSums' predicates of one token.
struct ClipEvents {
  bool clipped = false;
  bool high = false, low = false;
  bool capped = false;
  bool clipped_zero = false;
};

struct SurrogateSlope {
  double by_log_prob = 0.0;
  double by_log_ratio = 0.0;
  // The slope without clips, caps and selections.
  double unclipped_by_log_prob = 0.0;
  double unclipped_by_log_ratio = 0.0;
  ClipEvents events;
};

SurrogateSlope SurrogateSlopeAt(const LossSpec& loss, const LossPoint& point,
                                Margin& margin);

// r, which is 1 for surrogates without one, and clip(r) = r clamped to [1 -
// clip_low, 1 + clip_high].
double RatioOf(const LossSpec& loss, const LossPoint& point);
double ClippedRatio(const LossSpec& loss, double ratio);

// 0 where a is 0, whatever b is.
inline double Product(double a, double b) { return a == 0 ? 0.0 : a * b; }

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_SURROGATES_H_
