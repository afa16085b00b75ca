// The keys by which surrogates with kTraitSelection choose tokens.
#ifndef COUNTERWEIGHT_KERNELS_WALK_SELECTION_KEYS_H_
#define COUNTERWEIGHT_KERNELS_WALK_SELECTION_KEYS_H_

#include "kernels/surrogates/list.h"
#include "kernels/walk/loss_ratios.h"

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
                                   const LossContext& context, const State& s,
                                   LossTiles<Lanes>& t) {
    const TileOf<Lanes>& over =
        Lanes::choose(loss.spec.over == TokenSet::kKept, s.kept, s.mask);
    const TileOf<Lanes>& ratios = LossRatios<Lanes>::ratio(loss, s, t);
    with_surrogate<SurrogateWith<SurrogateOfWalk<Lanes>, kTraitSelection>>(
        loss.spec.surrogate, [&](auto surrogate) {
          COUNTERWEIGHT_UNROLL
          for (int k = 0; k < s.steps; ++k) {
            for (int i = 0; i < kWidth; ++i) {
              const float a = s.input[kAdvantages].at[k][i];
              const double lp = static_cast<double>(s.input[kCurrent].at[k][i]);
              const double covariance =
                  (static_cast<double>(a) - context.advantage_mean) *
                  (lp - context.log_prob_mean);
              t.prepared.at[k][i] = surrogate.selection_key(
                  loss,
                  {covariance, ratios.at[k][i], a, over.at[k][i] != 0.0f});
            }
          }
        });
    Lanes::store(t.prepared, s, context.selection_keys);
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_SELECTION_KEYS_H_
