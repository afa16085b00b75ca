// Losses that clip the ratio of each token.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"

namespace counterweight::kernels::methods {
namespace {

std::vector<Method> PpoRows() {
  return {
      {.name = "ppo_clip",
       .origin = "verl",
       .origin_name = "vanilla",
       .summary = "PPO's clipped ratio, with dual clip, averaged over tokens.",
       .formula =
           "loss = (1/n) sum_t V_t; V_t = max(-A_t r_t, -A_t clip(r_t, 1 - "
           "clip_low, 1 + clip_high)), where A_t < 0 at most -A_t dual_clip; "
           "r = exp(c_20(l)); l = current - old",
       .when_to_use = "The default: several gradient steps on one batch.",
       .reference = "J. Schulman et al., Proximal Policy Optimization, 2017, "
                    "arXiv:1707.06347; dual clip: D. Ye et al., 2020, "
                    "arXiv:1912.09729",
       .parameters = {ClipLow(0.2), ClipHigh(0.2), DualClip(3.0)},
       .make = [](Values v) { return OnlyLoss(PpoClip(v[0], v[1], v[2])); }},
      {.name = "ppo_two_sided",
       .origin = "trl",
       .origin_name = "delta",
       .summary = "PPO's clipped ratio whose unclipped branch is capped.",
       .formula =
           "loss = (1/n) sum_t max(-A_t min(r_t, delta), -A_t clip(r_t, 1 - "
           "clip_low, 1 + clip_high)); r = exp(l); l = current - old",
       .when_to_use = "Asynchronous training, where a negative advantage meets "
                      "huge ratios.",
       .reference = "Prime Intellect, INTELLECT-2, 2025, arXiv:2505.07291",
       .parameters = {ClipLow(0.2),
                      ClipHigh(0.2),
                      {"delta", "ratio", 4.0,
                       "largest ratio of the unclipped branch, > 0; meant to "
                       "be above 1 + clip_high"}},
       .make =
           [](Values v) {
             LossSpec loss =
                 Clipped(Loss(Surrogate::kPpoClip, RatioSource::kCurrentOld),
                         v[0], v[1]);
             loss.ratio_cap = v[2];
             return OnlyLoss(loss);
           }},
  };
}

std::vector<Method> GroupRelativeRows() {
  return {
      {.name = "dapo",
       .origin = "trl",
       .origin_name = "loss_type: dapo",
       .summary = "PPO's clipped ratio with a higher upper end, averaged over "
                  "tokens.",
       .formula =
           "loss = (1/n) sum_t max(-A_t r_t, -A_t clip(r_t, 1 - clip_low, 1 + "
           "clip_high)); r = exp(c_20(l)); l = current - old",
       .when_to_use = "Long answers with group-relative advantages: every "
                      "token counts alike, and rare ones may rise.",
       .reference = "Q. Yu et al., DAPO, 2025, arXiv:2503.14476",
       .parameters = {ClipLow(0.2), ClipHigh(0.28)},
       .make =
           [](Values v) { return OnlyLoss(PpoClip(v[0], v[1], kUnbounded)); }},
      {.name = "grpo",
       .origin = "trl",
       .origin_name = "loss_type: grpo",
       .summary = "PPO's clipped ratio, averaged over each sequence and then "
                  "over sequences.",
       .formula = "loss = mean over rows of (1/n_i) sum_t max(-A_t r_t, -A_t "
                  "clip(r_t, 1 - clip_low, 1 + clip_high)); r = exp(c_20(l)); "
                  "l = current - old",
       .when_to_use = "Group-relative advantages where each answer should "
                      "count alike, however long.",
       .reference = "Z. Shao et al., DeepSeekMath, 2024, arXiv:2402.03300",
       .parameters = {ClipLow(0.2), ClipHigh(0.2)},
       .make =
           [](Values v) {
             return OnlyLoss(RowMeans(PpoClip(v[0], v[1], kUnbounded)));
           }},
  };
}

std::vector<Method> CovarianceRows() {
  constexpr std::string_view kCui =
      "G. Cui et al., The Entropy Mechanism of Reinforcement Learning for "
      "Reasoning Language Models, 2025, arXiv:2505.22617";
  return {
      {.name = "clip_cov",
       .origin = "verl",
       .origin_name = "clip_cov",
       .summary = "PPO's clipped ratio without some tokens of high covariance, "
                  "chosen at random.",
       .formula = "loss = (1/n) sum_t max(-A_t r_t, -A_t clip(r_t, 1 - "
                  "clip_low, 1 + clip_high)) over tokens that are not chosen; "
                  "chosen are covariance_fraction n of the tokens that are not "
                  "clipped and have covariance_lower < (A_t - mean A) (lp_t - "
                  "mean lp) < covariance_upper, or all if there are fewer; r = "
                  "exp(l); l = current - old",
       .when_to_use = "Against collapse of entropy; the request's seed makes "
                      "the choice repeatable.",
       .reference = kCui,
       .parameters = {ClipLow(0.2),
                      ClipHigh(0.2),
                      {"covariance_fraction", "fraction", 0.0002,
                       "share of the tokens that are chosen, at least one "
                       "token, in (0, 1]"},
                      {"covariance_lower", "advantage * nat", 1.0,
                       "candidates have a covariance above this"},
                      {"covariance_upper", "advantage * nat", 5.0,
                       "candidates have a covariance below this, >= "
                       "covariance_lower"}},
       .make =
           [](Values v) {
             LossSpec loss =
                 Clipped(Loss(Surrogate::kClipCov, RatioSource::kCurrentOld),
                         v[0], v[1]);
             loss.covariance_fraction = v[2];
             loss.covariance_lower = v[3];
             loss.covariance_upper = v[4];
             return OnlyLoss(loss);
           }},
      {.name = "kl_cov",
       .origin = "verl",
       .origin_name = "kl_cov",
       .summary = "The unclipped ratio with a penalty on the tokens of highest "
                  "covariance.",
       .formula = "loss = (1/n) sum_t (-A_t r_t + penalty_t); penalty_t = "
                  "covariance_kl_weight abs(l_t) on the covariance_fraction n "
                  "tokens with the largest (A_t - mean A) (lp_t - mean lp), "
                  "else 0; r = exp(l); l = current - old",
       .when_to_use = "Against collapse of entropy, softer than clip_cov.",
       .reference = kCui,
       .parameters = {{"covariance_fraction", "fraction", 0.0002,
                       "share of the tokens that are chosen, at least one "
                       "token, in (0, 1]"},
                      {"covariance_kl_weight", "advantage / nat", 1.0,
                       "weight of the penalty, >= 0"}},
       .make =
           [](Values v) {
             LossSpec loss = Loss(Surrogate::kKlCov, RatioSource::kCurrentOld);
             loss.covariance_fraction = v[0];
             loss.covariance_kl_weight = v[1];
             return OnlyLoss(loss);
           }},
  };
}

}  // namespace

std::vector<Method> ClippedLossRows() {
  return Join({PpoRows(), GroupRelativeRows(), CovarianceRows()});
}

}  // namespace counterweight::kernels::methods
