// verl's bypass presets without their losses: current against rollout.
#include "kernels/methods/building_blocks.h"
#include "kernels/methods/rows.h"

namespace counterweight::kernels::methods {

std::vector<Method> BypassRows() {
  return {
      {.name = "bypass_ppo_clip",
       .origin = "verl",
       .origin_name = "bypass_ppo_clip",
       .summary =
           "Drift of current against rollout; the loss clips that ratio.",
       .formula = "nothing but metrics of l = current - rollout",
       .when_to_use =
           "PPO straight against the rollout policy, which saves the forward "
           "pass for old log-probs; clipping does the correction.",
       .reference = kLiu,
       .parameters = {},
       .make = [](Values) { return Drift(kBypass); }},
      {.name = "bypass_ppo_clip_geo_rs",
       .origin = "verl",
       .origin_name = "bypass_ppo_clip_geo_rs",
       .summary = "geo_rs on current against rollout.",
       .formula = "row i stays where exp((1/n_i) sum_t c_20(l_t)) is in "
                  "[keep_lower, keep_upper]; l = current - rollout",
       .when_to_use = "bypass_ppo_clip with long answers, some of which the "
                      "policy has left.",
       .reference = kTrustRegion,
       .parameters = {KeepLower(0.999), KeepUpper(1.001)},
       .make =
           [](Values v) {
             return WithRule(Drift(kBypass), GeometricRule(v[0], v[1]));
           }},
      {.name = "bypass_ppo_clip_k3_rs",
       .origin = "verl",
       .origin_name = "bypass_ppo_clip_k3_rs",
       .summary = "k3_rs on current against rollout.",
       .formula = "row i stays where (1/n_i) sum_t (exp(x_t) - 1 - x_t) <= "
                  "keep_upper; x = c_20(l); l = current - rollout",
       .when_to_use = "Like bypass_ppo_clip_geo_rs, where ratios above and "
                      "below 1 must not cancel.",
       .reference = kTrustRegion,
       .parameters = {KeepNats(0.01)},
       .make = [](Values v) { return WithRule(Drift(kBypass), K3Rule(v[0])); }},
      {.name = "bypass_seq_tis",
       .origin = "verl",
       .origin_name = "bypass_pg_is",
       .summary = "seq_tis on current against rollout.",
       .formula =
           "w_i = min(exp(c_20(sum_t l_t)), upper); l = current - rollout",
       .when_to_use = "Plain policy gradients on short answers, without old "
                      "log-probs.",
       .reference = kLiu,
       .parameters = {Upper(2.0)},
       .make = [](Values v) { return SequenceTis(kBypass, v[0]); }},
      {.name = "bypass_icepop",
       .origin = "verl",
       .origin_name = "bypass_pg_token_icepop",
       .summary = "icepop on current against rollout.",
       .formula = "w_t = exp(c_20(l_t)) where that is in [lower, upper], else "
                  "0; l = current - rollout",
       .when_to_use = "Plain policy gradients of mixture-of-experts models, "
                      "without old log-probs.",
       .reference = kIcepop,
       .parameters = {Lower(0.5), Upper(5.0)},
       .make = [](Values v) { return TokenIcepop(kBypass, v[0], v[1]); }},
      {.name = "bypass_geo_rs",
       .origin = "verl",
       .origin_name = "bypass_pg_geo_rs",
       .summary =
           "geo_rs on current against rollout, for plain policy gradients.",
       .formula = "row i stays where exp((1/n_i) sum_t c_20(l_t)) is in "
                  "[keep_lower, keep_upper]; l = current - rollout",
       .when_to_use = "Plain policy gradients on long answers, where what is "
                      "kept needs no weight.",
       .reference = kTrustRegion,
       .parameters = {KeepLower(0.999), KeepUpper(1.001)},
       .make =
           [](Values v) {
             return WithRule(Drift(kBypass), GeometricRule(v[0], v[1]));
           }},
      {.name = "bypass_geo_rs_seq_tis",
       .origin = "verl",
       .origin_name = "bypass_pg_geo_rs_seq_tis",
       .summary = "geo_rs_seq_tis on current against rollout.",
       .formula = "w_i = min(exp(c_20(sum_t l_t)), upper); row i stays where "
                  "exp((1/n_i) sum_t c_20(l_t)) is in [keep_lower, "
                  "keep_upper]; l = current - rollout",
       .when_to_use = "bypass_seq_tis where whole outliers should go.",
       .reference = kTrustRegion,
       .parameters = {Upper(2.0), KeepLower(0.999), KeepUpper(1.001)},
       .make =
           [](Values v) {
             return WithRule(SequenceTis(kBypass, v[0]),
                             GeometricRule(v[1], v[2]));
           }},
      {.name = "bypass_geo_rs_token_tis",
       .origin = "verl",
       .origin_name = "bypass_pg_geo_rs_token_tis",
       .summary = "geo_rs_token_tis on current against rollout.",
       .formula = "w_t = min(exp(c_20(l_t)), upper); row i stays where "
                  "exp((1/n_i) sum_t c_20(l_t)) is in [keep_lower, "
                  "keep_upper]; l = current - rollout",
       .when_to_use = "Plain policy gradients on long answers of "
                      "mixture-of-experts models, without old log-probs.",
       .reference = kTrustRegion,
       .parameters = {Upper(2.0), KeepLower(0.999), KeepUpper(1.001)},
       .make =
           [](Values v) {
             return WithRule(TokenTis(kBypass, v[0]),
                             GeometricRule(v[1], v[2]));
           }},
  };
}

}  // namespace counterweight::kernels::methods
