// Means over turns, which rules and weights read as tensors. A turn is a run of
// positions of a row with response_mask 1: an agent's answer between two of its
// environment's. ROLL names it a segment (ROLL @8eb27cc2,
// roll/utils/train_infer_corrections.py).
#ifndef COUNTERWEIGHT_KERNELS_TURN_MEANS_H_
#define COUNTERWEIGHT_KERNELS_TURN_MEANS_H_

#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "kernels/spec.h"

namespace counterweight::kernels {

// Different means of one spec.
inline constexpr int kMaxTurnMeans = 2;

// clamp(mean over a turn of the estimator's number by token).
struct TurnStatistic {
  RatioSource source = RatioSource::kOldRollout;
  Estimator estimator = Estimator::kRatio;
  double token_clamp = kUnbounded;
  double aggregate_clamp = kUnbounded;

  bool operator==(const TurnStatistic&) const = default;
};

// The different ones of the weight (without its aggregate clamp) and the rules,
// in this order.
std::vector<TurnStatistic> TurnStatistics(const CorrectionSpec& spec);

inline bool ReadsTurnMeans(const CorrectionSpec& spec) {
  return !TurnStatistics(spec).empty();
}

// The spec with tokens' rules and weights of the sources kMeans and
// kOtherMeans in place of those of turns. REQUIRES: at most kMaxTurnMeans.
CorrectionSpec WithTurnMeans(const CorrectionSpec& spec);

class TurnMeans {
 public:
  // Computes them: in float64 and rounded once, 0 where response_mask is. A
  // token with a number that is not finite has no part in a mean with policy
  // DROP and is a 0 of it with others; it ends no turn. `stop`, which may be
  // empty, is called between rows: false once it is true. REQUIRES: Validate()
  // of the spec is empty; host memory.
  bool Make(const CorrectionSpec& spec, const Batch& batch,
            const StopRequest& stop);

  // Gives the tensors to a batch, which this must outlive.
  void AddTo(Batch* batch) const;

  // Bytes that Make takes.
  static int64_t Bytes(const CorrectionSpec& spec, int64_t num_positions);

 private:
  std::vector<float> means_[kMaxTurnMeans];
  std::vector<float> zeros_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_TURN_MEANS_H_
