// Losses that bound the update by something else than PPO's clip.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"

namespace counterweight::kernels::methods {
namespace {

constexpr std::string_view kDppo =
    "P. Qi et al., Rethinking the Trust Region in LLM Reinforcement Learning "
    "(DPPO), 2026, arXiv:2602.04879";

// -A r lp, r capped and detached, as in verl.
CorrectionSpec Dppo(Surrogate surrogate, Values v) {
  LossSpec loss =
      Clamped(Clipped(Loss(surrogate, RatioSource::kCurrentOld), v[0], v[1]));
  loss.ratio_cap = v[2];
  loss.log_prob_form = true;
  return OnlyLoss(loss);
}

constexpr MethodParameter kRatioCap = {"ratio_cap", "ratio", 3.0,
                                       "largest ratio, > 0"};

std::vector<Method> WeightedLogProbRows() {
  return {
      {.name = "cispo",
       .origin = "skyrl",
       .origin_name = "policy_loss_type: cispo",
       .summary = "Log-probs times advantages, weighted by the clipped ratio.",
       .formula =
           "loss = (1/n) sum_t -A_t clip(r_t, 1 - clip_low, 1 + clip_high) "
           "lp_t, the ratio detached; r = exp(c_20(l)); l = current - old",
       .when_to_use = "Where clipping must not silence rare but decisive "
                      "tokens: every token keeps a gradient.",
       .reference = "MiniMax-M1, 2025, arXiv:2506.13585",
       .parameters = {ClipLow(1.0), ClipHigh(4.0)},
       .make =
           [](Values v) {
             return OnlyLoss(Clamped(
                 Clipped(Loss(Surrogate::kCispo, RatioSource::kCurrentOld),
                         v[0], v[1])));
           }},
      {.name = "rollout_is",
       .origin = "skyrl",
       .origin_name = "policy_loss_type: rollout_is",
       .summary = "Log-probs times advantages, weighted by the ratio to the "
                  "rollout policy, 0 outside an interval.",
       .formula =
           "loss = (1/n) sum_t -A_t r_t lp_t where 1 - clip_low < r_t < 1 + "
           "clip_high, else 0, the ratio detached; r = exp(c_20(l)); "
           "l = current - rollout",
       .when_to_use = "One ratio for mismatch and staleness together, without "
                      "old log-probs.",
       .reference = "SkyRL policy_loss_type rollout_is",
       .parameters = {ClipLow(0.2), ClipHigh(0.2)},
       .make =
           [](Values v) {
             return OnlyLoss(Clamped(Clipped(
                 Loss(Surrogate::kRolloutIs, RatioSource::kCurrentRollout),
                 v[0], v[1])));
           }},
  };
}

std::vector<Method> TrustRegionRows() {
  return {
      {.name = "sapo",
       .origin = "verl",
       .origin_name = "sapo",
       .summary = "A soft gate on the ratio instead of a clip.",
       .formula = "loss = mean over rows of (1/n_i) sum_t -A_t sigmoid(tau "
                  "(r_t - 1)) 4 / tau; tau = tau_positive where A_t > 0, else "
                  "tau_negative; r = exp(c_20(l)); l = current - old",
       .when_to_use = "Where hard clips make training jumpy, as with "
                      "mixture-of-experts models.",
       .reference = "C. Gao et al., Soft Adaptive Policy Optimization, 2025, "
                    "arXiv:2511.20347",
       .parameters = {{"tau_positive", "", 1.0, "tau where A > 0, > 0"},
                      {"tau_negative", "", 1.05, "tau where A <= 0, > 0"}},
       .make =
           [](Values v) {
             LossSpec loss = RowMeans(
                 Clamped(Loss(Surrogate::kSapo, RatioSource::kCurrentOld)));
             loss.tau_positive = v[0];
             loss.tau_negative = v[1];
             return OnlyLoss(loss);
           }},
      {.name = "dppo_tv",
       .origin = "verl",
       .origin_name = "dppo_tv",
       .summary = "No gradient where the token's probability has moved too "
                  "far.",
       .formula =
           "loss = (1/n) sum_t -A_t min(r_t, ratio_cap) lp_t, the ratio "
           "detached, except 0 where A_t > 0 and p - q > clip_high or A_t <= 0 "
           "and p - q < -clip_low; p = exp(current); q = exp(old); "
           "r = exp(c_20(l)); l = current - old",
       .when_to_use = "Large vocabularies: ratios over-punish rare tokens and "
                      "under-punish likely ones, probabilities do not.",
       .reference = kDppo,
       .parameters = {{"clip_low", "probability", 0.15,
                       "largest fall of the probability, >= 0"},
                      {"clip_high", "probability", 0.15,
                       "largest rise of the probability, >= 0"},
                      kRatioCap},
       .make = [](Values v) { return Dppo(Surrogate::kDppoTv, v); }},
      {.name = "dppo_kl",
       .origin = "verl",
       .origin_name = "dppo_kl",
       .summary = "dppo_tv that measures by the divergence of two binary "
                  "distributions.",
       .formula =
           "loss = (1/n) sum_t -A_t min(r_t, ratio_cap) lp_t, the ratio "
           "detached, except 0 where A_t > 0, p > q and not D <= clip_high or "
           "A_t <= 0, p < q and not D <= clip_low; D = q log(q / p) + (1 - q) "
           "log((1 - "
           "q + 1e-8) / (1 - p + 1e-8)); p = exp(current); q = exp(old); "
           "r = exp(c_20(l)); l = current - old",
       .when_to_use = "Like dppo_tv, stricter towards probabilities near 0 "
                      "and 1.",
       .reference = kDppo,
       .parameters = {{"clip_low", "nats", 0.05,
                       "largest divergence of a fallen probability, >= 0"},
                      {"clip_high", "nats", 0.05,
                       "largest divergence of a risen probability, >= 0"},
                      kRatioCap},
       .make = [](Values v) { return Dppo(Surrogate::kDppoKl, v); }},
      {.name = "dro",
       .origin = "verl",
       .origin_name = "dro",
       .summary = "Log-probs times advantages with a quadratic penalty on the "
                  "log ratio.",
       .formula = "loss = (1/n) sum_t -(A_t lp_t - beta / 2 l_t^2); "
                  "l = current - old",
       .when_to_use = "Offline or very stale data, where ratios are useless "
                      "but the distance should stay small.",
       .reference = "P. Richemond et al., Offline Regularised Reinforcement "
                    "Learning (DRO), 2024, arXiv:2405.19107",
       .parameters = {{"beta", "advantage / nat^2", 0.05,
                       "weight of the penalty, finite, > 0"}},
       .make =
           [](Values v) {
             LossSpec loss = Loss(Surrogate::kDro, RatioSource::kCurrentOld);
             loss.beta = v[0];
             return OnlyLoss(loss);
           }},
  };
}

}  // namespace

std::vector<Method> GatedLossRows() {
  return Join({WeightedLogProbRows(), TrustRegionRows()});
}

}  // namespace counterweight::kernels::methods
