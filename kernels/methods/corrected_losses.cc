// Losses with weights or rules, as they are run together.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"

namespace counterweight::kernels::methods {
namespace {

constexpr std::string_view kDecoupledPpo =
    "J. Hilton et al., Batch Size-Invariance for Policy Optimization "
    "(decoupled PPO), 2021, arXiv:2110.00641; weights and rejection: Y. Li et "
    "al., Trust Region Masking, 2025, arXiv:2512.23075";

CorrectionSpec Reinforce(const CorrectionSpec& spec) {
  return WithLoss(spec, Loss(Surrogate::kReinforce, spec.drift_source));
}

std::vector<Method> DecoupledLossRows() {
  return {
      {.name = "token_tis_ppo_clip",
       .origin = "verl",
       .origin_name = "decoupled_token_is, vanilla",
       .summary = "ppo_clip of current against old, times token_tis of old "
                  "against rollout.",
       .formula = "loss = (1/n) sum_t w_t V_t; w_t = min(exp(c_20(l_t)), "
                  "upper); V_t = max(-A_t r_t, -A_t clip(r_t, 1 - clip_low, 1 "
                  "+ clip_high)), where A_t < 0 at most -A_t dual_clip; r = "
                  "exp(c_20(current - old)); l = old - rollout",
       .when_to_use = "Several gradient steps on one batch whose engine "
                      "disagrees with the trainer.",
       .reference = kDecoupledPpo,
       .parameters = {Upper(2.0), ClipLow(0.2), ClipHigh(0.2), DualClip(3.0)},
       .make =
           [](Values v) {
             return WithLoss(TokenTis(kDecoupled, v[0]),
                             PpoClip(v[1], v[2], v[3]));
           }},
      {.name = "geo_rs_token_tis_ppo_clip",
       .origin = "skyrl",
       .origin_name = "tis_ratio_type: token, sequence_mask_metric: geometric",
       .summary = "token_tis_ppo_clip without the sequences that geo_rs drops.",
       .formula =
           "loss = (1/n) sum_t w_t V_t over rows that stay; row i stays where "
           "exp((1/n_i) sum_t c_20(l_t)) is in [keep_lower, keep_upper]; w_t = "
           "min(exp(c_20(l_t)), upper); V_t = max(-A_t r_t, -A_t clip(r_t, 1 - "
           "clip_low, 1 + clip_high)), where A_t < 0 at most -A_t dual_clip; r "
           "= exp(c_20(current - old)); l = old - rollout",
       .when_to_use =
           "token_tis_ppo_clip with long answers or mixture-of-experts models; "
           "the loss is not scaled up for what is dropped.",
       .reference = kDecoupledPpo,
       .parameters = {Upper(2.0), KeepLower(0.999), KeepUpper(1.001),
                      ClipLow(0.2), ClipHigh(0.2), DualClip(3.0)},
       .make =
           [](Values v) {
             return WithLoss(WithRule(TokenTis(kDecoupled, v[0]),
                                      GeometricRule(v[1], v[2])),
                             PpoClip(v[3], v[4], v[5]));
           }},
  };
}

std::vector<Method> BypassLossRows() {
  return {
      {.name = "bypass_token_tis_reinforce",
       .origin = "verl",
       .origin_name = "bypass_mode, loss_type: reinforce, rollout_is: token",
       .summary = "reinforce, times token_tis of current against rollout.",
       .formula = "loss = (1/n) sum_t -w_t A_t lp_t; w_t = min(exp(c_20(l_t)), "
                  "upper); l = current - rollout",
       .when_to_use = "Plain policy gradients on data that is a little stale, "
                      "without old log-probs.",
       .reference = kLiu,
       .parameters = {Upper(2.0)},
       .make = [](Values v) { return Reinforce(TokenTis(kBypass, v[0])); }},
      {.name = "bypass_seq_tis_reinforce",
       .origin = "verl",
       .origin_name = "bypass_pg_is",
       .summary = "reinforce, times seq_tis of current against rollout.",
       .formula =
           "loss = (1/n) sum_t -w_i A_t lp_t, w_i = min(exp(c_20(sum_t l_t)), "
           "upper); l = current - rollout",
       .when_to_use =
           "bypass_token_tis_reinforce on short answers, where the weight of "
           "the whole sequence keeps the gradient unbiased.",
       .reference = kLiu,
       .parameters = {Upper(2.0)},
       .make = [](Values v) { return Reinforce(SequenceTis(kBypass, v[0])); }},
  };
}

}  // namespace

std::vector<Method> CorrectedLossRows() {
  return Join({DecoupledLossRows(), BypassLossRows()});
}

}  // namespace counterweight::kernels::methods
