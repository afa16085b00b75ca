// What KL_COV and CLIP_COV rank tokens by.
#ifndef COUNTERWEIGHT_KERNELS_WALK_SELECTION_KEYS_H_
#define COUNTERWEIGHT_KERNELS_WALK_SELECTION_KEYS_H_

#include "kernels/walk/tile_state.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

template <class Lanes>
struct SelectionKeys {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;

  static constexpr int kCurrent = static_cast<int>(InputRole::kCurrent);
  static constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);

  // See LossContext::selection_keys.
  COUNTERWEIGHT_HD static void run(const LossPlan& loss,
                                   const LossContext& context, State& s) {
    const TileOf<Lanes>& over =
        Lanes::choose(loss.spec.over == TokenSet::kKept, s.left, s.mask);
    const bool candidates = loss.spec.surrogate == Surrogate::kClipCov;
    const double lowest = loss.spec.covariance_lower;
    const double highest = loss.spec.covariance_upper;
    COUNTERWEIGHT_UNROLL
    for (int k = 0; k < s.steps; ++k) {
      for (int i = 0; i < kWidth; ++i) {
        const double a = static_cast<double>(s.input[kAdvantages].at[k][i]);
        const double lp = static_cast<double>(s.input[kCurrent].at[k][i]);
        const double covariance =
            (a - context.advantage_mean) * (lp - context.log_prob_mean);
        const bool counts = over.at[k][i] != 0.0f;
        const float narrow = static_cast<float>(covariance);
        float key = counts && narrow == narrow ? narrow : -__builtin_inff();
        if (candidates) {
          const float r = s.ratio.at[k][i];
          const float side = s.input[kAdvantages].at[k][i];
          const bool clipped = (r > loss.ratio_high && side > 0.0f) ||
                               (r < loss.ratio_low && side < 0.0f);
          const bool candidate =
              counts && !clipped && covariance > lowest && covariance < highest;
          key = candidate ? 1.0f : 0.0f;
        }
        s.estimate.at[k][i] = key;
      }
    }
    Lanes::store(s.estimate, s, context.selection_keys);
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_SELECTION_KEYS_H_
