// One table; long, because every named method is a row of it.
#include "kernels/methods.h"

#include <cmath>
#include <string>

#include "kernels/log_ratio.h"

namespace counterweight::kernels {
namespace {

using Values = std::span<const double>;

constexpr RatioSource kDecoupled = RatioSource::kOldRollout;
constexpr RatioSource kBypass = RatioSource::kCurrentRollout;

// Building blocks: each takes a spec and adds one choice.

CorrectionSpec Drift(RatioSource source) {
  CorrectionSpec spec;
  spec.drift_source = source;
  return spec;
}

// verl and SkyRL clamp the exponent of a weight at 20 nats, TRL and OpenRLHF do
// not.
CorrectionSpec WithWeight(CorrectionSpec spec, Level level, Bound bound,
                          double lower, double upper, double clamp) {
  spec.weight.source = spec.drift_source;
  spec.weight.level = level;
  spec.weight.bound = bound;
  spec.weight.lower = lower;
  spec.weight.upper = upper;
  spec.weight.token_clamp = level == Level::kToken ? clamp : kUnbounded;
  spec.weight.aggregate_clamp = level == Level::kToken ? kUnbounded : clamp;
  return spec;
}

CorrectionSpec WithRule(CorrectionSpec spec, const RejectionRule& rule) {
  spec.rules[spec.num_rules] = rule;
  spec.rules[spec.num_rules].source = spec.drift_source;
  ++spec.num_rules;
  return spec;
}

CorrectionSpec TokenTis(RatioSource source, double upper) {
  return WithWeight(Drift(source), Level::kToken, Bound::kTruncate, 0.0, upper,
                    20.0);
}

CorrectionSpec SequenceTis(RatioSource source, double upper) {
  return WithWeight(Drift(source), Level::kSequence, Bound::kTruncate, 0.0,
                    upper, 20.0);
}

CorrectionSpec TokenIcepop(RatioSource source, double lower, double upper) {
  return WithWeight(Drift(source), Level::kToken, Bound::kMask, lower, upper,
                    20.0);
}

RejectionRule RatioRule(Aggregation aggregation, double lower, double upper,
                        double token_clamp) {
  RejectionRule rule;
  rule.aggregation = aggregation;
  rule.token_clamp = token_clamp;
  rule.lower = LogRatio(lower);
  rule.upper = LogRatio(upper);
  return rule;
}

RejectionRule GeometricRule(double lower, double upper) {
  return RatioRule(Aggregation::kMean, lower, upper, 20.0);
}

RejectionRule K3Rule(double upper) {
  RejectionRule rule;
  rule.estimator = Estimator::kK3;
  rule.aggregation = Aggregation::kMean;
  rule.token_clamp = 20.0;
  rule.upper = upper;
  return rule;
}

// TRL and OpenRLHF: exponents not clamped.
CorrectionSpec Unclamped(Level level, Bound bound, double lower, double upper) {
  return WithWeight(Drift(kDecoupled), level, bound, lower, upper, kUnbounded);
}

// OpenRLHF's token weight exp(d), unbounded, zeroed by a rule.
CorrectionSpec ZeroedBy(Aggregation aggregation, double lower, double upper) {
  RejectionRule rule = RatioRule(aggregation, lower, upper, kUnbounded);
  rule.effect = Effect::kZeroWeight;
  return WithRule(Unclamped(Level::kToken, Bound::kNone, 0.0, kUnbounded),
                  rule);
}

// DeepSeek-V3.2's off-policy sequence masking: drops sequences of negative
// advantage whose mean log(mu / pi_theta) exceeds delta.
CorrectionSpec Opsm(double delta) {
  RejectionRule rule;
  rule.aggregation = Aggregation::kMean;
  rule.condition = Condition::kNegativeAdvantage;
  rule.lower = -delta;
  return WithRule(Drift(kBypass), rule);
}

// SkyRL compares safe_exp of an aggregate: clamped after aggregation.
RejectionRule SkyrlSequenceRule(Aggregation aggregation, double lower,
                                double upper) {
  RejectionRule rule = RatioRule(aggregation, lower, upper, kUnbounded);
  rule.aggregate_clamp = 20.0;
  return rule;
}

constexpr MethodParameter Upper(double value) {
  return {"upper", "ratio", value, "largest importance weight, > 0"};
}
constexpr MethodParameter Lower(double value) {
  return {"lower", "ratio", value, "smallest importance weight, >= 0"};
}
constexpr MethodParameter KeepLower(double value) {
  return {"keep_lower", "ratio", value, "keep interval, lower end, >= 0"};
}
constexpr MethodParameter KeepUpper(double value) {
  return {"keep_upper", "ratio", value, "keep interval, upper end, > 0"};
}
constexpr MethodParameter KeepNats(double value) {
  return {"keep_upper", "nats", value, "largest mean k3 of a sequence, > 0"};
}

constexpr std::string_view kLiu =
    "J. Liu, Y. Li et al., When Speed Kills Stability, 2025, "
    "https://richardli.xyz/rl-collapse";
constexpr std::string_view kTrustRegion =
    "Y. Li et al., Trust Region Masking, 2025, arXiv:2512.23075";
constexpr std::string_view kIcepop =
    "Ring-1T, Every Step Evolves (IcePop), 2025, arXiv:2510.18855";
constexpr std::string_view kTrl = "TRL GRPOConfig vllm_importance_sampling_*";
constexpr std::string_view kGsm =
    "Geometric sequence masking, TRL pull request 4891";
constexpr std::string_view kOpsm =
    "DeepSeek-V3.2, 2025, arXiv:2512.02556, off-policy sequence masking";
constexpr std::string_view kSkyrl = "SkyRL off_policy_correction";
constexpr std::string_view kOpenrlhf = "OpenRLHF vllm_is_correction";
constexpr std::string_view kPro = "REINFORCE Pro, 2026";

std::vector<Method> DecoupledMethods() {
  return {
      {"token_tis",
       "verl",
       "decoupled_token_is",
       "Token weights truncated above.",
       kLiu,
       {Upper(2.0)},
       [](Values v) { return TokenTis(kDecoupled, v[0]); }},
      {"seq_tis",
       "verl",
       "decoupled_seq_is",
       "One weight per sequence, the product of ratios, truncated above.",
       kLiu,
       {Upper(2.0)},
       [](Values v) { return SequenceTis(kDecoupled, v[0]); }},
      {"icepop",
       "verl",
       "decoupled_token_icepop",
       "Token weights, 0 outside an interval.",
       kIcepop,
       {Lower(0.5), Upper(5.0)},
       [](Values v) { return TokenIcepop(kDecoupled, v[0], v[1]); }},
      {"seq_mis",
       "verl",
       "decoupled_seq_is_rs",
       "Sequence weights truncated above; sequences whose product of ratios "
       "leaves an interval are dropped.",
       kLiu,
       {Upper(2.0), KeepLower(0.5), KeepUpper(2.0)},
       [](Values v) {
         return WithRule(SequenceTis(kDecoupled, v[0]),
                         RatioRule(Aggregation::kSum, v[1], v[2], 20.0));
       }},
      {"geo_rs",
       "verl",
       "decoupled_geo_rs",
       "Sequences whose geometric mean ratio leaves an interval are dropped.",
       kTrustRegion,
       {KeepLower(0.999), KeepUpper(1.001)},
       [](Values v) {
         return WithRule(Drift(kDecoupled), GeometricRule(v[0], v[1]));
       }},
      {"geo_rs_seq_tis",
       "verl",
       "decoupled_geo_rs_seq_tis",
       "geo_rs with truncated sequence weights.",
       kTrustRegion,
       {Upper(2.0), KeepLower(0.999), KeepUpper(1.001)},
       [](Values v) {
         return WithRule(SequenceTis(kDecoupled, v[0]),
                         GeometricRule(v[1], v[2]));
       }},
      {"geo_rs_token_tis",
       "verl",
       "decoupled_geo_rs_token_tis",
       "geo_rs with truncated token weights.",
       kTrustRegion,
       {Upper(2.0), KeepLower(0.999), KeepUpper(1.001)},
       [](Values v) {
         return WithRule(TokenTis(kDecoupled, v[0]), GeometricRule(v[1], v[2]));
       }},
      {"k3_rs",
       "verl",
       "decoupled_k3_rs",
       "Sequences whose mean k3 is too large are dropped.",
       kTrustRegion,
       {KeepNats(0.01)},
       [](Values v) { return WithRule(Drift(kDecoupled), K3Rule(v[0])); }},
      {"k3_rs_seq_tis",
       "verl",
       "decoupled_k3_rs_seq_tis",
       "k3_rs with truncated sequence weights.",
       kTrustRegion,
       {Upper(2.0), KeepNats(0.01)},
       [](Values v) {
         return WithRule(SequenceTis(kDecoupled, v[0]), K3Rule(v[1]));
       }},
      {"k3_rs_token_tis",
       "verl",
       "decoupled_k3_rs_token_tis",
       "k3_rs with truncated token weights.",
       kTrustRegion,
       {Upper(2.0), KeepNats(0.01)},
       [](Values v) {
         return WithRule(TokenTis(kDecoupled, v[0]), K3Rule(v[1]));
       }},
      {"none",
       "verl",
       "disabled",
       "Drift metrics only.",
       kLiu,
       {},
       [](Values) { return Drift(kDecoupled); }},
  };
}

std::vector<Method> BypassMethods() {
  return {
      {"bypass_ppo_clip",
       "verl",
       "bypass_ppo_clip",
       "Drift of current against rollout; the loss clips that ratio.",
       kLiu,
       {},
       [](Values) { return Drift(kBypass); }},
      {"bypass_ppo_clip_geo_rs",
       "verl",
       "bypass_ppo_clip_geo_rs",
       "geo_rs on current against rollout.",
       kTrustRegion,
       {KeepLower(0.999), KeepUpper(1.001)},
       [](Values v) {
         return WithRule(Drift(kBypass), GeometricRule(v[0], v[1]));
       }},
      {"bypass_ppo_clip_k3_rs",
       "verl",
       "bypass_ppo_clip_k3_rs",
       "k3_rs on current against rollout.",
       kTrustRegion,
       {KeepNats(0.01)},
       [](Values v) { return WithRule(Drift(kBypass), K3Rule(v[0])); }},
      {"bypass_seq_tis",
       "verl",
       "bypass_pg_is",
       "seq_tis on current against rollout.",
       kLiu,
       {Upper(2.0)},
       [](Values v) { return SequenceTis(kBypass, v[0]); }},
      {"bypass_icepop",
       "verl",
       "bypass_pg_token_icepop",
       "icepop on current against rollout.",
       kIcepop,
       {Lower(0.5), Upper(5.0)},
       [](Values v) { return TokenIcepop(kBypass, v[0], v[1]); }},
      {"bypass_geo_rs",
       "verl",
       "bypass_pg_geo_rs",
       "geo_rs on current against rollout, for plain policy gradients.",
       kTrustRegion,
       {KeepLower(0.999), KeepUpper(1.001)},
       [](Values v) {
         return WithRule(Drift(kBypass), GeometricRule(v[0], v[1]));
       }},
      {"bypass_geo_rs_seq_tis",
       "verl",
       "bypass_pg_geo_rs_seq_tis",
       "geo_rs_seq_tis on current against rollout.",
       kTrustRegion,
       {Upper(2.0), KeepLower(0.999), KeepUpper(1.001)},
       [](Values v) {
         return WithRule(SequenceTis(kBypass, v[0]), GeometricRule(v[1], v[2]));
       }},
      {"bypass_geo_rs_token_tis",
       "verl",
       "bypass_pg_geo_rs_token_tis",
       "geo_rs_token_tis on current against rollout.",
       kTrustRegion,
       {Upper(2.0), KeepLower(0.999), KeepUpper(1.001)},
       [](Values v) {
         return WithRule(TokenTis(kBypass, v[0]), GeometricRule(v[1], v[2]));
       }},
  };
}

std::vector<Method> TrlMethods() {
  return {
      {"trl_token_truncate",
       "trl",
       "token_truncate",
       "Token weights clamped into an interval, exponents not clamped.",
       kTrl,
       {Lower(0.0), Upper(3.0)},
       [](Values v) {
         return Unclamped(Level::kToken, Bound::kTruncate, v[0], v[1]);
       }},
      {"trl_token_mask",
       "trl",
       "token_mask",
       "Token weights, 0 outside an interval.",
       kTrl,
       {Lower(0.0), Upper(3.0)},
       [](Values v) {
         return Unclamped(Level::kToken, Bound::kMask, v[0], v[1]);
       }},
      {"trl_sequence_truncate",
       "trl",
       "sequence_truncate",
       "Sequence weights (product of ratios) clamped into an interval.",
       kTrl,
       {Lower(0.0), Upper(3.0)},
       [](Values v) {
         return Unclamped(Level::kSequence, Bound::kTruncate, v[0], v[1]);
       }},
      {"trl_sequence_mask",
       "trl",
       "sequence_mask",
       "Sequence weights (product of ratios), 0 outside an interval.",
       kTrl,
       {Lower(0.0), Upper(3.0)},
       [](Values v) {
         return Unclamped(Level::kSequence, Bound::kMask, v[0], v[1]);
       }},
      {"trl_geometric_mask",
       "trl",
       "sequence_geometric_mean_mask",
       "Geometric mean ratios as weights, 0 outside an interval.",
       kGsm,
       {Lower(0.0), Upper(3.0)},
       [](Values v) {
         return Unclamped(Level::kGeometric, Bound::kMask, v[0], v[1]);
       }},
      {"opsm",
       "trl",
       "off_policy_mask_threshold",
       "Sequences of negative advantage that the policy left are dropped.",
       kOpsm,
       {{"delta", "nats", 0.5,
         "largest mean log(rollout / current) of a kept sequence, >= 0"}},
       [](Values v) { return Opsm(v[0]); }},
  };
}

std::vector<Method> SkyrlMethods() {
  return {
      {"skyrl_token_tis",
       "skyrl",
       "tis_ratio_type: token",
       "Token weights capped.",
       kSkyrl,
       {Upper(2.0)},
       [](Values v) { return TokenTis(kDecoupled, v[0]); }},
      {"skyrl_sequence_tis",
       "skyrl",
       "tis_ratio_type: sequence",
       "Sequence weights capped.",
       kSkyrl,
       {Upper(5.0)},
       [](Values v) { return SequenceTis(kDecoupled, v[0]); }},
      {"skyrl_geometric_mask",
       "skyrl",
       "sequence_mask_metric: geometric",
       "Sequences whose geometric mean ratio leaves an interval are dropped.",
       kSkyrl,
       {KeepLower(0.99), KeepUpper(1.01)},
       [](Values v) {
         return WithRule(Drift(kDecoupled),
                         SkyrlSequenceRule(Aggregation::kMean, v[0], v[1]));
       }},
      {"skyrl_product_mask",
       "skyrl",
       "sequence_mask_metric: product",
       "Sequences whose product of ratios leaves an interval are dropped.",
       kSkyrl,
       {KeepLower(0.5), KeepUpper(2.0)},
       [](Values v) {
         return WithRule(Drift(kDecoupled),
                         SkyrlSequenceRule(Aggregation::kSum, v[0], v[1]));
       }},
      {"skyrl_token_mask",
       "skyrl",
       "token_mask_is_threshold",
       "Tokens whose ratio leaves an interval are dropped.",
       kSkyrl,
       {KeepLower(0.5), KeepUpper(2.0)},
       [](Values v) {
         return WithRule(Drift(kDecoupled),
                         RatioRule(Aggregation::kToken, v[0], v[1], 20.0));
       }},
      {"skyrl_outlier_mask",
       "skyrl",
       "outlier_token_is_threshold",
       "Sequences with any token's ratio outside an interval are dropped.",
       kSkyrl,
       {KeepLower(1e-4), KeepUpper(100.0)},
       [](Values v) {
         return WithRule(Drift(kDecoupled),
                         RatioRule(Aggregation::kAll, v[0], v[1], 20.0));
       }},
  };
}

std::vector<Method> OpenrlhfMethods() {
  return {
      {"openrlhf_tis",
       "openrlhf",
       "tis",
       "Token weights clamped into an interval, exponents not clamped.",
       kOpenrlhf,
       {Lower(0.5), Upper(5.0)},
       [](Values v) {
         return Unclamped(Level::kToken, Bound::kTruncate, v[0], v[1]);
       }},
      {"openrlhf_icepop",
       "openrlhf",
       "icepop",
       "Token weights, 0 outside an interval, exponents not clamped.",
       kOpenrlhf,
       {Lower(0.5), Upper(5.0)},
       [](Values v) {
         return Unclamped(Level::kToken, Bound::kMask, v[0], v[1]);
       }},
      {"openrlhf_seq_mask_tis",
       "openrlhf",
       "seq-mask-tis",
       "Unbounded token weights, 0 in sequences whose geometric mean ratio "
       "leaves an interval.",
       kOpenrlhf,
       {KeepLower(0.5), KeepUpper(5.0)},
       [](Values v) { return ZeroedBy(Aggregation::kMean, v[0], v[1]); }},
      {"reinforce_pro",
       "openrlhf",
       "reinforce_pro",
       "Unbounded token weights, 0 where the running geometric mean ratio "
       "leaves an interval.",
       kPro,
       {KeepLower(0.5), KeepUpper(5.0)},
       [](Values v) { return ZeroedBy(Aggregation::kPrefixMean, v[0], v[1]); }},
  };
}

}  // namespace

const std::vector<Method>& Methods() {
  static const std::vector<Method>* const kMethods = [] {
    auto* all = new std::vector<Method>();
    for (const auto& family :
         {DecoupledMethods(), BypassMethods(), TrlMethods(), SkyrlMethods(),
          OpenrlhfMethods()}) {
      all->insert(all->end(), family.begin(), family.end());
    }
    return all;
  }();
  return *kMethods;
}

const Method* FindMethod(std::string_view name) {
  for (const Method& method : Methods()) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

CorrectionSpec MakeSpec(const Method& method,
                        const std::map<std::string, double>& overrides,
                        std::vector<SpecViolation>* violations) {
  std::vector<double> values;
  for (const MethodParameter& parameter : method.parameters) {
    const auto found = overrides.find(std::string(parameter.name));
    values.push_back(found == overrides.end() ? parameter.default_value
                                              : found->second);
  }
  for (const auto& [name, value] : overrides) {
    bool known = false;
    for (const MethodParameter& parameter : method.parameters) {
      known = known || parameter.name == name;
    }
    const std::string field = "parameters[" + name + "]";
    if (!known) {
      violations->push_back(
          {field, std::string(method.name) + " has no such parameter"});
    } else if (std::isnan(value)) {
      violations->push_back({field, "must not be NaN"});
    }
  }
  return method.make(values);
}

}  // namespace counterweight::kernels
