#include "server/engine/dialects/areal_rejection.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/fields.h"

namespace counterweight::server {
namespace {

using google::protobuf::Struct;
using kernels::Aggregation;
using kernels::Bound;
using kernels::Effect;
using kernels::Estimator;
using kernels::Level;
using kernels::RejectionRule;

constexpr std::string_view kArealRejection = "rejection_sampling";
constexpr std::string_view kArealLevel = "level";
constexpr std::string_view kArealAction = "action";
constexpr std::string_view kArealAgg = "agg";
constexpr std::string_view kArealLower = "lower";
constexpr std::string_view kArealUpper = "upper";
constexpr std::string_view kArealMetrics[] = {"ratio", "kl_k1", "kl_k2",
                                              "kl_k3"};

// AReaL's own conditions on bounds.
void CheckArealBounds(const BlockReader& block, const ArealRejection& of) {
  const bool is_ratio = of.metric == ArealMetric::kRatio;
  const auto need = [&](bool is_met, std::string_view key, double bound,
                        std::string_view condition) {
    if (is_met) return;
    block.Violate(key, Concat(key, " must be ", condition, " with metric '",
                              kArealMetrics[static_cast<size_t>(of.metric)],
                              "'; it is ", FormatNumber(bound), "."));
  };
  if (is_ratio) {
    need(of.upper > 1.0, kArealUpper, of.upper, "> 1");
    // AReaL's object has 0 where a clamp was given no lower bound.
    const bool is_of_clamp = of.clamps && of.lower == 0.0;
    need(block.IsNull(kArealLower) || of.lower > 0.0 || is_of_clamp,
         kArealLower, of.lower, "> 0");
  } else if (of.metric != ArealMetric::kK1) {
    need(of.upper > 0.0, kArealUpper, of.upper, "> 0");
  }
  need(of.lower <= of.upper, kArealLower, of.lower, "<= upper");
}

// The statistic as a rule.
RejectionRule StatisticOf(const ArealRejection& rejection,
                          kernels::RatioSource source) {
  constexpr Estimator kEstimators[] = {Estimator::kRatio, Estimator::kRatio,
                                       Estimator::kK2, Estimator::kReverseK3};
  constexpr Aggregation kAggregations[] = {
      Aggregation::kMean, Aggregation::kSum, Aggregation::kMax};
  RejectionRule rule;
  rule.source = source;
  rule.estimator = kEstimators[static_cast<size_t>(rejection.metric)];
  rule.aggregation =
      rejection.by_sequence
          ? kAggregations[static_cast<size_t>(rejection.aggregation)]
          : Aggregation::kToken;
  const bool is_ratio = rejection.metric == ArealMetric::kRatio;
  const auto bound = [&](double x) {
    return is_ratio && std::abs(x) < kernels::kUnbounded ? kernels::LogRatio(x)
                                                         : x;
  };
  rule.lower = bound(rejection.lower);
  rule.upper = bound(rejection.upper);
  return rule;
}

// Where the two policies are one, the ratio is 1 and the other metrics are 0.
void ApplyToEqualPolicies(const BlockReader& reader,
                          const ArealRejection& rejection,
                          kernels::WeightSpec* weight,
                          std::vector<std::string>* warnings) {
  const double statistic = rejection.metric == ArealMetric::kRatio ? 1.0 : 0.0;
  const bool is_inside =
      statistic >= rejection.lower && statistic <= rejection.upper;
  if (!is_inside && !rejection.clamps) {
    reader.Violate(
        kArealRejection,
        Concat(
            kArealRejection,
            " rejects every token: without "
            "use_decoupled_loss both policies are one, and the statistic is ",
            FormatNumber(statistic), "."));
    return;
  }
  weight->bound = Bound::kTruncate;
  weight->lower = rejection.clamps ? std::max(rejection.lower, 1.0) : 1.0;
  weight->upper = weight->lower;
  warnings->push_back(Concat(
      reader.Path(kArealRejection),
      " compares a policy with itself: use_decoupled_loss is what makes them "
      "two."));
}

}  // namespace

ArealRejection ReadArealRejection(const BlockReader& reader,
                                  bool ignore_unknown_fields,
                                  Translation* translation) {
  constexpr std::string_view kArealLevels[] = {"token", "sequence"};
  constexpr std::string_view kActions[] = {"mask", "clamp"};
  constexpr std::string_view kAggs[] = {"mean", "sum", "max"};
  ArealRejection of;
  const Struct* const fields = reader.ReadStruct(kArealRejection);
  if (fields == nullptr) return of;
  of.is_on = true;
  const BlockReader block(*fields, reader.Path(kArealRejection),
                          &translation->violations);
  block.CheckKeys(
      kArealRejectionFields, ignore_unknown_fields,
      [](std::string_view) { return std::string(); }, &translation->warnings);
  of.by_sequence =
      block.ReadName(kArealLevel, kArealLevels[0], kArealLevels) == size_t{1};
  of.clamps = block.ReadName(kArealAction, kActions[0], kActions) == size_t{1};
  const auto metric = block.ReadName("metric", kArealMetrics[0], kArealMetrics);
  const auto agg = block.ReadName(kArealAgg, kAggs[0], kAggs);
  of.metric = static_cast<ArealMetric>(metric.value_or(0));
  of.aggregation = static_cast<ArealAggregation>(agg.value_or(0));
  of.upper = block.ReadNumber(kArealUpper, of.upper);
  of.lower = block.ReadOptionalNumber(kArealLower).value_or(of.lower);
  if (metric) CheckArealBounds(block, of);
  if (of.clamps && metric && of.metric != ArealMetric::kRatio) {
    block.Violate(kArealAction,
                  "action 'clamp' bounds weights, so its metric is 'ratio'.");
  }
  const bool is_mean = of.aggregation == ArealAggregation::kMean;
  if (!is_mean && !of.by_sequence) {
    translation->warnings.push_back(
        Concat(block.Path(kArealAgg), " does nothing with level 'token'."));
  }
  if (!is_mean && of.by_sequence && of.clamps) {
    block.Violate(kArealAgg,
                  "action 'clamp' with agg other than 'mean' is not computed "
                  "yet: it bounds the geometric mean where another statistic "
                  "is outside.");
  }
  return of;
}

void ApplyArealRejection(const BlockReader& reader,
                         const ArealRejection& rejection,
                         const ArealPolicies& policies,
                         Translation* translation) {
  kernels::CorrectionSpec& spec = translation->spec;
  kernels::WeightSpec& weight = spec.weight;
  weight.level = rejection.by_sequence &&
                         rejection.metric == ArealMetric::kRatio &&
                         policies.is_decoupled
                     ? Level::kGeometric
                     : Level::kToken;
  weight.source = policies.Correction();
  if (!policies.is_decoupled) {
    ApplyToEqualPolicies(reader, rejection, &weight, &translation->warnings);
    return;
  }
  if (rejection.clamps) {
    weight.bound = Bound::kTruncate;
    weight.lower = std::max(rejection.lower, 0.0);
    weight.upper = rejection.upper;
    return;
  }
  for (const auto& [effect, name] :
       {std::pair{Effect::kZeroWeight, "rejection_weight"},
        std::pair{Effect::kDrop, "rejection_mask"}}) {
    RejectionRule& rule = spec.rules[spec.num_rules++];
    rule = StatisticOf(rejection, weight.source);
    rule.effect = effect;
    translation->rule_names.emplace_back(name);
  }
}

}  // namespace counterweight::server
