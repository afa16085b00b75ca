#include "server/engine/dialects/skyrl_metrics.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/skyrl_correction.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::BatchSums;
using kernels::CorrectionSpec;
using kernels::kSafetyClamp;
using kernels::Level;
using kernels::LossSpec;
using kernels::LossSums;
using kernels::RejectionRule;
using kernels::RuleSums;
using kernels::Surrogate;

// masked_mean is 0 without terms.
double Share(double sum, int64_t count) {
  return sum / static_cast<double>(std::max<int64_t>(count, 1));
}

double SafeExp(double log_ratio) {
  return std::exp(std::clamp(log_ratio, -kSafetyClamp, kSafetyClamp));
}

// Metrics of ratio times mask over all positions of the padded batch: a masked
// position has ratio 0.
void AddRatioMetrics(const BatchSums& sums, int64_t padded_length,
                     MetricMap* metrics) {
  const auto positions =
      static_cast<double>(sums.num_sequences * padded_length);
  const auto tokens = static_cast<double>(sums.tokens);
  const double masked = positions - tokens;
  const double excess_mean = Share(sums.drift.excess, sums.tokens);
  const double mean = sums.tokens > 0 ? 1.0 + excess_mean : 0.0;
  // Squares around the mean, separately for tokens and masked positions, do not
  // cancel where every ratio is near 1.
  const double squares = sums.drift.excess_squared -
                         tokens * excess_mean * excess_mean +
                         mean * mean * tokens * masked / positions;
  (*metrics)["is_ratio_mean"] = mean;
  (*metrics)["is_ratio_std"] =
      positions > 1.0 ? std::sqrt(std::max(squares, 0.0) / (positions - 1.0))
                      : kNan;
  (*metrics)["is_ratio_max"] =
      sums.tokens > 0 ? SafeExp(sums.drift.log_ratio_range.max) : 0.0;
  (*metrics)["is_ratio_min"] = sums.tokens > 0 && masked == 0.0
                                   ? SafeExp(sums.drift.log_ratio_range.min)
                                   : 0.0;
}

// Shares of all rows. A row without tokens for a sequence mask has a ratio of
// 1, which the kernels leave out.
void AddSequenceRuleMetrics(const RejectionRule& rule, const RuleSums& sums,
                            int64_t num_sequences, MetricMap* metrics) {
  int64_t high = sums.rows_high;
  int64_t low = sums.rows_low;
  int64_t rejected = sums.dropped_sequences;
  if (rule.aggregation != Aggregation::kAll) {
    const int64_t unseen = num_sequences - sums.seen_sequences;
    if (rule.upper < 0.0) high += unseen;
    if (rule.lower > 0.0) low += unseen;
    rejected = high + low;
  }
  const std::string name(SkyrlRuleName(rule.aggregation));
  (*metrics)[name + "_masked_ratio"] = Share(rejected, num_sequences);
  (*metrics)[name + "_over_high_ratio"] = Share(high, num_sequences);
  (*metrics)[name + "_under_low_ratio"] = Share(low, num_sequences);
}

void AddRuleMetrics(const RejectionRule& rule, const RuleSums& sums,
                    int64_t num_sequences, MetricMap* metrics) {
  if (rule.aggregation == Aggregation::kToken) {
    (*metrics)["token_mask_ratio"] =
        Share(sums.dropped_tokens, sums.seen_tokens);
  } else {
    AddSequenceRuleMetrics(rule, sums, num_sequences, metrics);
  }
}

void AddTisMetrics(const CorrectionSpec& spec, const BatchSums& sums,
                   MetricMap* metrics) {
  const double cap = spec.weight.upper;
  if (spec.weight.level == Level::kToken) {
    (*metrics)["tis_token_clip_high_ratio"] =
        spec.weight.after_rule > 0
            ? Share(sums.weight.after_rule_tokens_high,
                    sums.weight.after_rule_tokens)
            : Share(sums.weight.tokens_high, sums.tokens);
    return;
  }
  // The clamped ratio is compared, and that of an empty row is 1.
  const int64_t empty = sums.num_sequences - sums.nonempty_sequences;
  const int64_t high =
      (cap < kSkyrlLargestRatio ? sums.weight.sequences_log_high : 0) +
      (cap < 1.0 ? empty : 0);
  (*metrics)["tis_seq_clip_high_ratio"] = Share(high, sums.num_sequences);
}

void AddCispoMetrics(const BatchSums& sums, MetricMap* metrics) {
  const kernels::LossSums& loss = sums.loss;
  const kernels::PeerLossSums& peers = sums.peers.loss;
  const int64_t tokens = sums.tokens;
  (*metrics)["cispo/ratio_mean"] = Share(loss.ratio, tokens);
  (*metrics)["cispo/ratio_clamped_mean"] = Share(peers.clipped_ratio, tokens);
  // With an empty mask SkyRL uses the extrema of all positions.
  const kernels::Extrema& range =
      tokens > 0 ? loss.ratio_range : peers.padding_ratio_range;
  if (range.min > range.max) return;
  (*metrics)["cispo/ratio_max"] = range.max;
  (*metrics)["cispo/ratio_min"] = range.min;
}

bool HasClipRatio(Surrogate surrogate) {
  return surrogate != Surrogate::kSapo && surrogate != Surrogate::kKlCov &&
         surrogate != Surrogate::kCrossEntropy;
}

}  // namespace

void AddSkyrlCorrectionMetrics(const CorrectionSpec& spec,
                               int64_t padded_length, const BatchSums& sums,
                               MetricMap* metrics) {
  if (spec.num_rules == 0 && spec.weight.level == Level::kNone) return;
  AddRatioMetrics(sums, padded_length, metrics);
  for (int r = 0; r < spec.num_rules; ++r) {
    AddRuleMetrics(spec.rules[r], sums.rules[r], sums.num_sequences, metrics);
  }
  if (spec.weight.level != Level::kNone) AddTisMetrics(spec, sums, metrics);
}

void AddSkyrlLossMetrics(const LossSpec& loss, bool has_cispo_ratios,
                         const BatchSums& sums, MetricMap* metrics) {
  if (loss.surrogate == Surrogate::kNone) return;
  if (loss.surrogate == Surrogate::kImportanceSampling) {
    // A plain quotient, unlike the means of all other losses.
    (*metrics)["importance_ratio"] =
        sums.tokens > 0 ? sums.loss.ratio / static_cast<double>(sums.tokens)
                        : kNan;
  } else {
    (*metrics)["clip_ratio"] = HasClipRatio(loss.surrogate)
                                   ? Share(sums.loss.clipped, sums.tokens)
                                   : 0.0;
  }
  if (loss.surrogate == Surrogate::kCispo && has_cispo_ratios) {
    AddCispoMetrics(sums, metrics);
  }
  if (loss.kl.estimator != kernels::KlEstimator::kNone) {
    (*metrics)["policy_kl"] = sums.loss.kl_penalty;
  }
}

void AddSkyrlDriftMetrics(const CorrectionSpec& spec, const BatchSums& sums,
                          MetricMap* metrics) {
  constexpr std::string_view kPrefix = "policy/rollout_train_logprobs_abs_diff";
  if (spec.drift_source != kernels::RatioSource::kOldRollout ||
      sums.tokens == 0) {
    return;
  }
  const auto tokens = static_cast<double>(sums.tokens);
  const double mean = sums.drift.abs_log_ratio / tokens;
  const kernels::Extrema& range = sums.drift.log_ratio_range;
  // Log ratios of one sign have an exact sum.
  const bool one_sign = range.min >= 0.0 || range.max <= 0.0;
  const double center = one_sign ? sums.drift.log_ratio / tokens : mean;
  const double squares = range.min == range.max
                             ? 0.0
                             : 2.0 * sums.drift.k2 - tokens * center * center;
  (*metrics)[Concat(kPrefix, "_mean")] = mean;
  (*metrics)[Concat(kPrefix, "_std")] =
      sums.tokens > 1 ? std::sqrt(std::max(squares, 0.0) / (tokens - 1.0))
                      : kNan;
  (*metrics)[Concat(kPrefix, "_max")] = std::max(-range.min, range.max);
}

}  // namespace counterweight::server
