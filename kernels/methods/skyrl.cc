// SkyRL's off_policy_correction, one step at a time.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"
#include "kernels/sums.h"

namespace counterweight::kernels::methods {
namespace {

constexpr std::string_view kSkyrl = "SkyRL off_policy_correction";

// SkyRL clamps the aggregate.
RejectionRule SequenceRule(Aggregation aggregation, double lower,
                           double upper) {
  RejectionRule rule = RatioRule(aggregation, lower, upper, kUnbounded);
  rule.aggregate_clamp = kSafetyClamp;
  return rule;
}

}  // namespace

std::vector<Method> SkyrlRows() {
  return {
      {.name = "skyrl_token_tis",
       .origin = "skyrl",
       .origin_name = "tis_ratio_type: token",
       .summary = "Token weights capped.",
       .formula = "w_t = min(exp(c_20(l_t)), upper); l = old - rollout",
       .when_to_use = "What SkyRL recommends to try first.",
       .reference = kSkyrl,
       .parameters = {Upper(2.0)},
       .make = [](Values v) { return TokenTis(kDecoupled, v[0]); }},
      {.name = "skyrl_sequence_tis",
       .origin = "skyrl",
       .origin_name = "tis_ratio_type: sequence",
       .summary = "Sequence weights capped.",
       .formula = "w_i = min(exp(c_20(sum_t l_t)), upper); l = old - rollout",
       .when_to_use = "seq_tis with SkyRL's cap.",
       .reference = kSkyrl,
       .parameters = {Upper(5.0)},
       .make = [](Values v) { return SequenceTis(kDecoupled, v[0]); }},
      {.name = "skyrl_geometric_mask",
       .origin = "skyrl",
       .origin_name = "sequence_mask_metric: geometric",
       .summary = "Sequences whose geometric mean ratio leaves an interval are "
                  "dropped.",
       .formula = "row i stays where exp(c_20((1/n_i) sum_t l_t)) is in "
                  "[keep_lower, keep_upper]; l = old - rollout",
       .when_to_use =
           "Long contexts and mixture-of-experts models, where SkyRL "
           "recommends it beside token weights.",
       .reference = kSkyrl,
       .parameters = {KeepLower(0.99), KeepUpper(1.01)},
       .make =
           [](Values v) {
             return WithRule(Drift(kDecoupled),
                             SequenceRule(Aggregation::kMean, v[0], v[1]));
           }},
      {.name = "skyrl_product_mask",
       .origin = "skyrl",
       .origin_name = "sequence_mask_metric: product",
       .summary = "Sequences whose product of ratios leaves an interval are "
                  "dropped.",
       .formula = "row i stays where exp(c_20(sum_t l_t)) is in [keep_lower, "
                  "keep_upper]; l = old - rollout",
       .when_to_use = "Short answers, where sequences beyond the bound should "
                      "go and the others need no weight.",
       .reference = kSkyrl,
       .parameters = {KeepLower(0.5), KeepUpper(2.0)},
       .make =
           [](Values v) {
             return WithRule(Drift(kDecoupled),
                             SequenceRule(Aggregation::kSum, v[0], v[1]));
           }},
      {.name = "skyrl_token_mask",
       .origin = "skyrl",
       .origin_name = "token_mask_is_threshold",
       .summary = "Tokens whose ratio leaves an interval are dropped.",
       .formula = "token t stays where exp(c_20(l_t)) is in [keep_lower, "
                  "keep_upper]; l = old - rollout",
       .when_to_use = "Like icepop, where the tokens that stay need no weight.",
       .reference = kSkyrl,
       .parameters = {KeepLower(0.5), KeepUpper(2.0)},
       .make =
           [](Values v) {
             return WithRule(
                 Drift(kDecoupled),
                 RatioRule(Aggregation::kToken, v[0], v[1], kSafetyClamp));
           }},
      {.name = "skyrl_outlier_mask",
       .origin = "skyrl",
       .origin_name = "outlier_token_is_threshold",
       .summary =
           "Sequences with any token's ratio outside an interval are dropped.",
       .formula = "row i stays where exp(c_20(l_t)) is in [keep_lower, "
                  "keep_upper] at each of its tokens; l = old - rollout",
       .when_to_use = "A safety net for broken sequences, such as a wrong tool "
                      "output, beside any other correction.",
       .reference = kSkyrl,
       .parameters = {KeepLower(1e-4), KeepUpper(100.0)},
       .make =
           [](Values v) {
             return WithRule(
                 Drift(kDecoupled),
                 RatioRule(Aggregation::kAll, v[0], v[1], kSafetyClamp));
           }},
  };
}

}  // namespace counterweight::kernels::methods
