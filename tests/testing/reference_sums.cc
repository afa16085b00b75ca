#include "tests/testing/reference_sums.h"

#include <algorithm>
#include <cmath>

#include "tests/testing/reference_loss_sums.h"

namespace counterweight::kernels {
namespace {

int64_t Count(const Mask& mask) {
  return std::count(mask.begin(), mask.end(), 1);
}

// Index of the first bucket with an upper edge that is not below l.
int BucketOf(double l, Margin& margin) {
  int bucket = 0;
  while (bucket < kNumHistogramEdges &&
         margin.Above(l, kHistogramEdges[bucket]))
    ++bucket;
  return bucket;
}

double SafetyClamp(double l) {
  return std::clamp(l, -kSafetyClamp, kSafetyClamp);
}

constexpr InputRole kLogProbs[] = {InputRole::kRollout, InputRole::kOld,
                                   InputRole::kCurrent, InputRole::kRef};

PeerSums EmptyPeerSums() {
  PeerSums peers{};
  PeerCorrectionSums& correction = peers.correction;
  correction.log_ppl_difference_range = kNoExtrema;
  correction.sequence_log_range = kNoExtrema;
  for (PeerRuleSums& rule : correction.rules) rule.row_range = kNoExtrema;
  peers.loss = EmptyPeerLossSums();
  return peers;
}

}  // namespace

BatchSums EmptySums() {
  BatchSums sums{};
  sums.drift.log_ratio_range = kNoExtrema;
  sums.drift.sequence_log_ratio_range = kNoExtrema;
  sums.weight.range = kNoExtrema;
  sums.weight.sequence_range = kNoExtrema;
  sums.weight.normalizer = 1.0;
  for (RuleSums& rule : sums.rules) rule.range = kNoExtrema;
  sums.loss = EmptyLossSums();
  sums.peers = EmptyPeerSums();
  return sums;
}

void AddCounts(const RowResult& result, BatchSums& sums) {
  const int64_t tokens = Count(result.row.counts);
  const int64_t kept = Count(result.verdict.keep);
  sums.num_sequences += 1;
  sums.nonempty_sequences += tokens > 0;
  sums.tokens += tokens;
  sums.kept_tokens += kept;
  sums.kept_sequences += kept > 0;
  sums.touched_sequences += kept < tokens;
  sums.non_finite_tokens += Count(result.row.dropped) +
                            Count(result.row.neutralized) +
                            Count(result.row.unknown);
  for (int64_t t = 0; t < result.row.size(); ++t) {
    sums.zero_weight_tokens +=
        result.row.counts[t] &&
        static_cast<float>(result.final_weights[t]) == 0.0f;
    sums.positive_log_probs +=
        result.row.counts[t] &&
        std::ranges::any_of(kLogProbs, [&](InputRole role) {
          return result.row.Value(role, t) > 0.0;
        });
  }
}

void AddDrift(const CorrectionSpec& spec, const ReferenceRow& row,
              Adder<DriftSums> drift, Adder<PeerCorrectionSums> peers,
              Margin& margin) {
  const SourceRoles roles = RolesOf(spec.drift_source);
  double s = 0.0, numerator = 0.0, denominator = 0.0;
  int64_t n = 0;
  for (int64_t t = 0; t < row.size(); ++t) {
    if (!row.counts[t]) continue;
    const double l = row.LogRatio(spec.drift_source, t);
    const double u = std::expm1(SafetyClamp(l));
    drift.Add(&DriftSums::log_ratio, l);
    drift.Add(&DriftSums::abs_log_ratio, std::fabs(l));
    drift.Add(&DriftSums::k2, l * l / 2);
    drift.Add(&DriftSums::k3, std::expm1(l) - l);
    drift.Add(&DriftSums::excess, u);
    drift.Add(&DriftSums::excess_squared, u * u);
    drift.Extend(&DriftSums::log_ratio_range, l);
    drift.value.histogram[BucketOf(l, margin)] += 1;
    s += l;
    numerator += row.Value(roles.numerator, t);
    denominator += row.Value(roles.denominator, t);
    n += 1;
  }
  if (n == 0) return;
  const double a = numerator / n, b = denominator / n, e = -s / n;
  peers.Add(&PeerCorrectionSums::numerator_log_ppl, -a);
  drift.Add(&DriftSums::numerator_ppl, std::exp(-a));
  peers.Add(&PeerCorrectionSums::denominator_log_ppl, -b);
  drift.Add(&DriftSums::denominator_ppl, std::exp(-b));
  drift.Add(&DriftSums::log_ppl_difference, e);
  drift.Add(&DriftSums::abs_log_ppl_difference, std::fabs(e));
  peers.Extend(&PeerCorrectionSums::log_ppl_difference_range, e);
  drift.Add(&DriftSums::ppl_ratio_excess, std::expm1(e));
  drift.Add(&DriftSums::chi2_sequence, std::expm1(2 * SafetyClamp(s)));
  drift.Extend(&DriftSums::sequence_log_ratio_range, s);
  drift.value.sequence_histogram[BucketOf(s / n, margin)] += 1;
}

void AddProbability(RatioSource source, const ReferenceRow& row,
                    Adder<ProbabilitySums> sums) {
  const SourceRoles roles = RolesOf(source);
  for (int64_t t = 0; t < row.size(); ++t) {
    if (!row.counts[t]) continue;
    const double p = std::exp(row.Value(roles.numerator, t));
    const double q = std::exp(row.Value(roles.denominator, t));
    const double difference = std::fabs(p - q);
    sums.Add(&ProbabilitySums::abs_difference, difference);
    sums.Add(&ProbabilitySums::squared_difference, difference * difference);
    sums.Add(&ProbabilitySums::p, p);
    sums.Add(&ProbabilitySums::q, q);
    sums.Add(&ProbabilitySums::p_squared, p * p);
    sums.Add(&ProbabilitySums::q_squared, q * q);
    sums.Add(&ProbabilitySums::p_q, p * q);
    sums.value.max_difference = std::max(sums.value.max_difference, difference);
  }
}

void AddWeights(const WeightSpec& spec, const ReferenceRow& row,
                const RowWeights& weights, const RowVerdict& verdict,
                Adder<WeightSums> sums, Adder<PeerCorrectionSums> peers,
                Margin& margin) {
  const Mask& left = verdict.left_after[spec.after_rule];
  const double low = spec.lower > 0 ? spec.lower : 1 / spec.upper;
  double row_log_ratio = 0.0, raw_sum = 0.0, sum = 0.0, distance = 0.0;
  int64_t n = 0;
  for (int64_t t = 0; t < row.size(); ++t) {
    if (!row.counts[t]) continue;
    const double w = weights.bounded[t], raw = weights.raw[t];
    sums.Add(&WeightSums::weight, w);
    sums.Add(&WeightSums::weight_squared, w * w);
    sums.Add(&WeightSums::excess, w - 1);
    sums.Add(&WeightSums::excess_squared, (w - 1) * (w - 1));
    if (verdict.keep[t] && !verdict.zeroed[t]) {
      sums.Add(&WeightSums::kept_weight, w);
      sums.Add(&WeightSums::kept_weight_squared, w * w);
    }
    sums.Extend(&WeightSums::range, w);
    const bool high = margin.Above(raw, spec.upper);
    sums.value.tokens_high += high;
    if (spec.level == Level::kToken && spec.after_rule > 0 && left[t]) {
      sums.value.after_rule_tokens += 1;
      sums.value.after_rule_tokens_high += high;
    }
    sums.value.tokens_low += margin.Below(raw, low);
    sums.value.tokens_outside += high || margin.Below(raw, spec.lower);
    row_log_ratio = weights.log_ratio[t];
    raw_sum += raw;
    sum += w;
    distance += std::fabs(w - 1);
    n += 1;
  }
  if (n == 0) return;
  peers.value.sequences_high += margin.Above(raw_sum / n, spec.upper);
  peers.value.sequences_low += margin.Below(raw_sum / n, low);
  if (IsSequenceLevel(spec.level)) {
    peers.Extend(&PeerCorrectionSums::sequence_log_range, row_log_ratio);
    sums.value.sequences_log_high +=
        margin.Above(row_log_ratio, std::log(spec.upper));
    peers.value.sequences_log_low += margin.Below(row_log_ratio, std::log(low));
  }
  const double p = sum / n;
  sums.Add(&WeightSums::sequence_excess, p - 1, distance / n);
  peers.Add(&PeerCorrectionSums::sequence_excess_squared, (p - 1) * (p - 1),
            std::fabs(p - 1) * distance / n);
  sums.Extend(&WeightSums::sequence_range, p);
}

void AddRule(const RejectionRule& rule, const RuleOutcome& outcome,
             Adder<RuleSums> sums, Adder<PeerRuleSums> peers) {
  const bool positive = rule.estimator != Estimator::kRatio &&
                        rule.estimator != Estimator::kDifference;
  const double lower = positive && rule.lower == -kUnbounded ? 0.0 : rule.lower;
  double size = 0.0;
  for (size_t t = 0; t < outcome.seen.size(); ++t) {
    if (!outcome.seen[t]) continue;
    const double x = outcome.x[t];
    const double y = std::max(std::min(x, rule.upper), lower);
    size += std::fabs(x);
    sums.Add(&RuleSums::sum, x);
    peers.Add(&PeerRuleSums::clamped, y);
    peers.Add(&PeerRuleSums::clamped_squared, y * y);
    sums.Extend(&RuleSums::range, x);
    sums.value.seen_tokens += 1;
    sums.value.tokens_high += outcome.above[t];
    sums.value.tokens_low += outcome.below[t];
  }
  const int64_t fired = Count(outcome.fired);
  sums.value.dropped_tokens += fired;
  sums.value.dropped_sequences += fired > 0;
  if (!outcome.row_seen) return;
  size /= static_cast<double>(Count(outcome.seen));
  sums.value.seen_sequences += 1;
  sums.value.rows_high += outcome.row_above;
  sums.value.rows_low += outcome.row_below;
  sums.Add(&RuleSums::row_sum, outcome.q, size);
  peers.Add(&PeerRuleSums::row_squared, outcome.q * outcome.q,
            std::fabs(outcome.q) * size);
  peers.Extend(&PeerRuleSums::row_range, outcome.q);
}

void ForgetPeers(const CorrectionSpec& spec, PeerSums& peers) {
  const PeerSums nothing = EmptyPeerSums();
  if (!spec.peer_sums) peers.correction = nothing.correction;
  if (spec.loss.peer_sums) return;
  const PeerLossSums loss = peers.loss;
  peers.loss = nothing.loss;
  peers.loss.padding_kl = loss.padding_kl;
  peers.loss.padding_high = loss.padding_high;
  peers.loss.padding_low = loss.padding_low;
  peers.loss.padding_ratio_range = loss.padding_ratio_range;
}

}  // namespace counterweight::kernels
