// TRL's importance sampling modes and off-policy mask.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"

namespace counterweight::kernels::methods {
namespace {

constexpr std::string_view kTrl = "TRL GRPOConfig vllm_importance_sampling_*";
constexpr std::string_view kGsm =
    "Geometric sequence masking, TRL pull request 4891";
constexpr std::string_view kOpsm =
    "DeepSeek-V3.2, 2025, arXiv:2512.02556, off-policy sequence masking";

// Drops sequences of negative advantage if their mean log(rollout / current)
// exceeds delta.
CorrectionSpec Opsm(double delta) {
  RejectionRule rule;
  rule.aggregation = Aggregation::kMean;
  rule.condition = Condition::kNegativeAdvantage;
  rule.lower = -delta;
  return WithRule(Drift(kBypass), rule);
}

}  // namespace

std::vector<Method> TrlRows() {
  return {
      {.name = "trl_token_truncate",
       .origin = "trl",
       .origin_name = "token_truncate",
       .summary =
           "Token weights clamped into an interval, exponents not clamped.",
       .formula = "w_t = min(max(exp(l_t), lower), upper); l = old - rollout",
       .when_to_use = "token_tis with TRL's numbers.",
       .reference = kTrl,
       .parameters = {Lower(0.0), Upper(3.0)},
       .make =
           [](Values v) {
             return Unclamped(Level::kToken, Bound::kTruncate, v[0], v[1]);
           }},
      {.name = "trl_token_mask",
       .origin = "trl",
       .origin_name = "token_mask",
       .summary = "Token weights, 0 outside an interval.",
       .formula = "w_t = exp(l_t) where that is in [lower, upper], else 0; "
                  "l = old - rollout",
       .when_to_use = "icepop with TRL's numbers.",
       .reference = kTrl,
       .parameters = {Lower(0.0), Upper(3.0)},
       .make =
           [](Values v) {
             return Unclamped(Level::kToken, Bound::kMask, v[0], v[1]);
           }},
      {.name = "trl_sequence_truncate",
       .origin = "trl",
       .origin_name = "sequence_truncate",
       .summary =
           "Sequence weights (product of ratios) clamped into an interval.",
       .formula = "w_i = min(max(exp(sum_t l_t), lower), upper); "
                  "l = old - rollout",
       .when_to_use = "seq_tis with TRL's numbers.",
       .reference = kTrl,
       .parameters = {Lower(0.0), Upper(3.0)},
       .make =
           [](Values v) {
             return Unclamped(Level::kSequence, Bound::kTruncate, v[0], v[1]);
           }},
      {.name = "trl_sequence_mask",
       .origin = "trl",
       .origin_name = "sequence_mask",
       .summary =
           "Sequence weights (product of ratios), 0 outside an interval.",
       .formula = "w_i = exp(sum_t l_t) where that is in [lower, upper], else "
                  "0; l = old - rollout",
       .when_to_use = "What TRL does by default; short answers only, as the "
                      "product leaves any interval with length.",
       .reference = kTrl,
       .parameters = {Lower(0.0), Upper(3.0)},
       .make =
           [](Values v) {
             return Unclamped(Level::kSequence, Bound::kMask, v[0], v[1]);
           }},
      {.name = "trl_geometric_mask",
       .origin = "trl",
       .origin_name = "sequence_geometric_mean_mask",
       .summary = "Geometric mean ratios as weights, 0 outside an interval.",
       .formula = "w_i = exp((1/n_i) sum_t l_t) where that is in [lower, "
                  "upper], else 0; l = old - rollout",
       .when_to_use = "Long answers in TRL: like trl_sequence_mask, without "
                      "its dependence on length.",
       .reference = kGsm,
       .parameters = {Lower(0.0), Upper(3.0)},
       .make =
           [](Values v) {
             return Unclamped(Level::kGeometric, Bound::kMask, v[0], v[1]);
           }},
      {.name = "opsm",
       .origin = "trl",
       .origin_name = "off_policy_mask_threshold",
       .summary =
           "Sequences of negative advantage that the policy left are dropped.",
       .formula = "tokens with A_t < 0 stay where -(1/n_i) sum_t l_t <= delta; "
                  "l = current - rollout",
       .when_to_use = "Stale data: not to push further down what the policy no "
                      "longer says anyway.",
       .reference = kOpsm,
       .parameters = {{"delta", "nats", 0.5,
                       "largest mean log(rollout / current) of a kept "
                       "sequence, >= 0"}},
       .make = [](Values v) { return Opsm(v[0]); }},
  };
}

}  // namespace counterweight::kernels::methods
