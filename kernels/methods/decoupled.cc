// verl's decoupled presets: weights and rejection of old against rollout.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"
#include "kernels/sums.h"

namespace counterweight::kernels::methods {
namespace {

std::vector<Method> WeightRows() {
  return {
      {.name = "token_tis",
       .origin = "verl",
       .origin_name = "decoupled_token_is",
       .summary = "Token weights truncated above.",
       .formula = "w_t = min(exp(c_20(l_t)), upper); l = old - rollout",
       .when_to_use =
           "The first thing to try where engine and trainer disagree: low "
           "variance, small bias, no token lost.",
       .reference = kLiu,
       .parameters = {Upper(2.0)},
       .make = [](Values v) { return TokenTis(kDecoupled, v[0]); }},
      {.name = "seq_tis",
       .origin = "verl",
       .origin_name = "decoupled_seq_is",
       .summary =
           "One weight per sequence, the product of ratios, truncated above.",
       .formula = "w_i = min(exp(c_20(sum_t l_t)), upper); l = old - rollout",
       .when_to_use =
           "Short answers and small mismatch, where the unbiased weight of a "
           "whole sequence still has a bearable variance.",
       .reference = kLiu,
       .parameters = {Upper(2.0)},
       .make = [](Values v) { return SequenceTis(kDecoupled, v[0]); }},
      {.name = "icepop",
       .origin = "verl",
       .origin_name = "decoupled_token_icepop",
       .summary = "Token weights, 0 outside an interval.",
       .formula = "w_t = exp(c_20(l_t)) where that is in [lower, upper], else "
                  "0; l = old - rollout",
       .when_to_use =
           "Mixture-of-experts models, where single tokens disagree wildly "
           "and should not train at all.",
       .reference = kIcepop,
       .parameters = {Lower(0.5), Upper(5.0)},
       .make = [](Values v) { return TokenIcepop(kDecoupled, v[0], v[1]); }},
      {.name = "none",
       .origin = "verl",
       .origin_name = "disabled",
       .summary = "Drift metrics only.",
       .formula = "nothing but metrics of l = old - rollout",
       .when_to_use = "To see how far the engine is from the trainer before "
                      "anything is corrected.",
       .reference = kLiu,
       .parameters = {},
       .make = [](Values) { return Drift(kDecoupled); }},
  };
}

std::vector<Method> RatioRejectionRows() {
  return {
      {.name = "seq_mis",
       .origin = "verl",
       .origin_name = "decoupled_seq_is_rs",
       .summary = "Sequence weights truncated above; sequences whose product "
                  "of ratios leaves an interval are dropped.",
       .formula = "w_i = min(exp(c_20(sum_t l_t)), upper); row i stays where "
                  "exp(sum_t c_20(l_t)) is in [keep_lower, keep_upper]; "
                  "l = old - rollout",
       .when_to_use = "Like seq_tis, where sequences beyond the bound should "
                      "be left out rather than bounded.",
       .reference = kLiu,
       .parameters = {Upper(2.0), KeepLower(0.5), KeepUpper(2.0)},
       .make =
           [](Values v) {
             return WithRule(
                 SequenceTis(kDecoupled, v[0]),
                 RatioRule(Aggregation::kSum, v[1], v[2], kSafetyClamp));
           }},
      {.name = "geo_rs",
       .origin = "verl",
       .origin_name = "decoupled_geo_rs",
       .summary = "Sequences whose geometric mean ratio leaves an interval are "
                  "dropped.",
       .formula = "row i stays where exp((1/n_i) sum_t c_20(l_t)) is in "
                  "[keep_lower, keep_upper]; l = old - rollout",
       .when_to_use = "Long answers: a bound that does not tighten with "
                      "length, unlike that of a product.",
       .reference = kTrustRegion,
       .parameters = {KeepLower(0.999), KeepUpper(1.001)},
       .make =
           [](Values v) {
             return WithRule(Drift(kDecoupled), GeometricRule(v[0], v[1]));
           }},
      {.name = "geo_rs_seq_tis",
       .origin = "verl",
       .origin_name = "decoupled_geo_rs_seq_tis",
       .summary = "geo_rs with truncated sequence weights.",
       .formula = "w_i = min(exp(c_20(sum_t l_t)), upper); row i stays where "
                  "exp((1/n_i) sum_t c_20(l_t)) is in [keep_lower, "
                  "keep_upper]; l = old - rollout",
       .when_to_use = "To correct the small drift of the sequences that geo_rs "
                      "keeps, where they are short.",
       .reference = kTrustRegion,
       .parameters = {Upper(2.0), KeepLower(0.999), KeepUpper(1.001)},
       .make =
           [](Values v) {
             return WithRule(SequenceTis(kDecoupled, v[0]),
                             GeometricRule(v[1], v[2]));
           }},
      {.name = "geo_rs_token_tis",
       .origin = "verl",
       .origin_name = "decoupled_geo_rs_token_tis",
       .summary = "geo_rs with truncated token weights.",
       .formula = "w_t = min(exp(c_20(l_t)), upper); row i stays where "
                  "exp((1/n_i) sum_t c_20(l_t)) is in [keep_lower, "
                  "keep_upper]; l = old - rollout",
       .when_to_use = "Long answers of mixture-of-experts models: whole "
                      "outliers go, single tokens are bounded.",
       .reference = kTrustRegion,
       .parameters = {Upper(2.0), KeepLower(0.999), KeepUpper(1.001)},
       .make =
           [](Values v) {
             return WithRule(TokenTis(kDecoupled, v[0]),
                             GeometricRule(v[1], v[2]));
           }},
  };
}

std::vector<Method> DivergenceRejectionRows() {
  return {
      {.name = "k3_rs",
       .origin = "verl",
       .origin_name = "decoupled_k3_rs",
       .summary = "Sequences whose mean k3 is too large are dropped.",
       .formula = "row i stays where (1/n_i) sum_t (exp(x_t) - 1 - x_t) <= "
                  "keep_upper; x = c_20(l); l = old - rollout",
       .when_to_use = "Like geo_rs, where ratios above and below 1 must not "
                      "cancel: k3 is never negative.",
       .reference = kTrustRegion,
       .parameters = {KeepNats(0.01)},
       .make =
           [](Values v) { return WithRule(Drift(kDecoupled), K3Rule(v[0])); }},
      {.name = "k3_rs_seq_tis",
       .origin = "verl",
       .origin_name = "decoupled_k3_rs_seq_tis",
       .summary = "k3_rs with truncated sequence weights.",
       .formula = "w_i = min(exp(c_20(sum_t l_t)), upper); row i stays where "
                  "(1/n_i) sum_t (exp(x_t) - 1 - x_t) <= keep_upper; "
                  "x = c_20(l); l = old - rollout",
       .when_to_use = "To correct the small drift of the sequences that k3_rs "
                      "keeps, where they are short.",
       .reference = kTrustRegion,
       .parameters = {Upper(2.0), KeepNats(0.01)},
       .make =
           [](Values v) {
             return WithRule(SequenceTis(kDecoupled, v[0]), K3Rule(v[1]));
           }},
      {.name = "k3_rs_token_tis",
       .origin = "verl",
       .origin_name = "decoupled_k3_rs_token_tis",
       .summary = "k3_rs with truncated token weights.",
       .formula = "w_t = min(exp(c_20(l_t)), upper); row i stays where "
                  "(1/n_i) sum_t (exp(x_t) - 1 - x_t) <= keep_upper; "
                  "x = c_20(l); l = old - rollout",
       .when_to_use = "Like geo_rs_token_tis, where ratios above and below 1 "
                      "must not cancel.",
       .reference = kTrustRegion,
       .parameters = {Upper(2.0), KeepNats(0.01)},
       .make =
           [](Values v) {
             return WithRule(TokenTis(kDecoupled, v[0]), K3Rule(v[1]));
           }},
  };
}

}  // namespace

std::vector<Method> DecoupledRows() {
  return Join({WeightRows(), RatioRejectionRows(), DivergenceRejectionRows()});
}

}  // namespace counterweight::kernels::methods
