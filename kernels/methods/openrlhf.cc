// OpenRLHF's corrections of rollout by old log-probs. Exponents are not
// clamped.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"

namespace counterweight::kernels::methods {
namespace {

constexpr std::string_view kOpenrlhf = "OpenRLHF is_correction";
constexpr std::string_view kPro = "REINFORCE Pro, 2026";

// Unbounded token weights, zeroed by a rule.
CorrectionSpec ZeroedBy(Aggregation aggregation, double lower, double upper) {
  RejectionRule rule = RatioRule(aggregation, lower, upper, kUnbounded);
  rule.effect = Effect::kZeroWeight;
  return WithRule(Unclamped(Level::kToken, Bound::kNone, 0.0, kUnbounded),
                  rule);
}

}  // namespace

std::vector<Method> OpenrlhfRows() {
  return {
      {.name = "openrlhf_tis",
       .origin = "openrlhf",
       .origin_name = "tis",
       .summary =
           "Token weights clamped into an interval, exponents not clamped.",
       .formula = "w_t = min(max(exp(l_t), lower), upper); l = old - rollout",
       .when_to_use = "token_tis with OpenRLHF's numbers, which has a lower "
                      "bound too.",
       .reference = kOpenrlhf,
       .parameters = {Lower(0.5), Upper(5.0)},
       .make =
           [](Values v) {
             return Unclamped(Level::kToken, Bound::kTruncate, v[0], v[1]);
           }},
      {.name = "openrlhf_icepop",
       .origin = "openrlhf",
       .origin_name = "icepop",
       .summary =
           "Token weights, 0 outside an interval, exponents not clamped.",
       .formula = "w_t = exp(l_t) where that is in [lower, upper], else 0; "
                  "l = old - rollout",
       .when_to_use = "icepop; the clamp that it lacks makes no difference for "
                      "bounds within exp(-20) and exp(20).",
       .reference = kOpenrlhf,
       .parameters = {Lower(0.5), Upper(5.0)},
       .make =
           [](Values v) {
             return Unclamped(Level::kToken, Bound::kMask, v[0], v[1]);
           }},
      {.name = "openrlhf_seq_mask_tis",
       .origin = "openrlhf",
       .origin_name = "seq-mask-tis",
       .summary = "Unbounded token weights, 0 in sequences whose geometric "
                  "mean ratio leaves an interval.",
       .formula = "w_t = exp(l_t) where exp((1/n_i) sum_t l_t) is in "
                  "[keep_lower, keep_upper], else 0; l = old - rollout",
       .when_to_use = "Where whole sequences should stop training but stay in "
                      "the denominator; nothing bounds a single token.",
       .reference = kOpenrlhf,
       .parameters = {KeepLower(0.5), KeepUpper(5.0)},
       .make =
           [](Values v) { return ZeroedBy(Aggregation::kMean, v[0], v[1]); }},
      {.name = "reinforce_pro",
       .origin = "openrlhf",
       .origin_name = "reinforce_pro",
       .summary = "Unbounded token weights, 0 where the running geometric mean "
                  "ratio leaves an interval.",
       .formula = "w_t = exp(l_t) where exp of the mean of l over the tokens "
                  "up to and with t is in [keep_lower, keep_upper], else 0; "
                  "l = old - rollout",
       .when_to_use = "Long answers whose beginning is sound: tokens train "
                      "until the prefix has drifted.",
       .reference = kPro,
       .parameters = {KeepLower(0.5), KeepUpper(5.0)},
       .make =
           [](Values v) {
             return ZeroedBy(Aggregation::kPrefixMean, v[0], v[1]);
           }},
  };
}

}  // namespace counterweight::kernels::methods
