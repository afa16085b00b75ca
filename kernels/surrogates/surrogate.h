// Inputs and results of a policy surrogate. Each surrogate is one struct, see
// clipped.h; list.h names them all.
#ifndef COUNTERWEIGHT_KERNELS_SURROGATES_SURROGATE_H_
#define COUNTERWEIGHT_KERNELS_SURROGATES_SURROGATE_H_

#include "kernels/plan/loss_plan.h"
#include "kernels/tile/tile.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// A register of tokens as a surrogate sees them.
struct SurrogateInput {
  Vec a;         // advantage
  Vec lp;        // current log-prob
  Vec l;         // log ratio of LossSpec::source, without its clamp
  Vec r;         // ratio: exp(l), clamped; LossRow::ratio where rows share one
  Vec excess;    // r - 1
  Vec prepared;  // what prepare() left; 1 for tokens that were selected
  // LossRow::value.
  float row_value[2];
};

// V and its slopes, all 0 unless set. Flags are 0 or 1, as in LossSums.
struct SurrogateVec {
  Vec value;
  Vec slope;       // dV / dlp with r held fixed
  Vec full_slope;  // without clipping
  // dV / dr without clipping, and where clipping leaves 0 of it.
  Vec full_ratio_slope;
  Vec stopped;
  Vec clipped;
  Vec high;
  Vec low;
  Vec capped;
  Vec beyond_zero;
};

// The slope of V that reaches the log-prob through r, without clipping and with
// it; dr = dr / dl. A slope of 0 stays 0 under an infinite r.
struct RatioSlope {
  Vec full;
  Vec own;
};
COUNTERWEIGHT_HD RatioSlope slope_through_ratio(const SurrogateVec& v, Vec dr) {
  const Vec zero{};
  const Vec full = v.full_ratio_slope != 0.0f ? v.full_ratio_slope * dr : zero;
  return {full, v.stopped != 0.0f ? zero : full};
}

COUNTERWEIGHT_HD Vec clip(const LossPlan& loss, Vec r) {
  return clip(r, splat(loss.ratio_low), splat(loss.ratio_high));
}

// -A x; 0 where A is, whatever x: a token without advantage costs nothing, also
// where its ratio overflows.
COUNTERWEIGHT_HD Vec cost(Vec a, Vec x) { return a != 0.0f ? -a * x : Vec{}; }

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SURROGATES_SURROGATE_H_
