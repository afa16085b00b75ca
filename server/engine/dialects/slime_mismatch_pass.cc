#include "server/engine/dialects/slime_mismatch_pass.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/log_ratio.h"

namespace counterweight::server {
namespace {

using kernels::kSafetyClamp;
using kernels::Level;

double Clamped(double log_ratio) {
  return std::clamp(log_ratio, -kSafetyClamp, kSafetyClamp);
}

// By mode; kCount: there is none.
constexpr SlimeMean kBelow[] = {SlimeMean::kCount, SlimeMean::kTisClipLow,
                                SlimeMean::kTisMaskLow};
constexpr SlimeMean kAbove[] = {SlimeMean::kTruncateFraction,
                                SlimeMean::kTisClipHigh,
                                SlimeMean::kTisMaskHigh};

}  // namespace

SlimeInterval SafeRatios() {
  constexpr double kEnds[] = {-kSafetyClamp, kSafetyClamp};
  RowNumbers exp, expm1;
  Exponentials(kEnds, &exp, &expm1);
  return {exp[0], exp[1]};
}

SlimeMismatchPass::LogInterval SlimeMismatchPass::LogsOf(
    const SlimeInterval& ratios) {
  return {kernels::LogRatio(std::max(ratios.low, 0.0)),
          kernels::LogRatio(ratios.high)};
}

SlimeMismatchPass::SlimeMismatchPass(const SlimeCorrection& correction,
                                     double normalizer, SlimeMeans* means)
    : correction_(correction),
      normalizer_(normalizer),
      means_(*means),
      bounds_(LogsOf(correction.bounds)),
      rs_(LogsOf(correction.rs.value_or(SlimeInterval()))),
      veto_(kernels::LogRatio(correction.veto.value_or(0.0))) {}

void SlimeMismatchPass::Add(const RowTokens& row,
                            std::span<const double> policy) {
  const std::span<const double> rollout = row.of(kernels::InputRole::kRollout);
  mask_ = row.mask;
  Subtract(policy, rollout, &difference_);
  Exponentials(difference_, &exp_, &expm1_);
  if (correction_.function != SlimeFunction::kMis) return AddTis();
  AddMis(policy, rollout);
  if (correction_.weighs) AddWeights();
}

void SlimeMismatchPass::AddTis() {
  double ratio = 0.0, abs = 0.0;
  int64_t outside = 0;
  ForCounted([&](size_t i) {
    ratio += exp_[i];
    abs += std::fabs(expm1_[i]);
    outside += difference_[i] < bounds_.low || difference_[i] > bounds_.high;
  });
  means_.AddSum(SlimeMean::kTis, ratio);
  means_.AddSum(SlimeMean::kTisAbs, abs);
  means_.AddSum(SlimeMean::kTisClipFraction, static_cast<double>(outside));
}

void SlimeMismatchPass::ReadLevels(std::span<const double> policy,
                                   std::span<const double> rollout) {
  Levels of;
  double policy_sum = 0.0, rollout_sum = 0.0;
  ForCounted([&](size_t i) {
    policy_sum += policy[i];
    rollout_sum += rollout[i];
    of.sum += difference_[i];
  });
  const double divisor = means_.own_divisor();
  of.policy_mean = policy_sum / divisor;
  of.rollout_mean = rollout_sum / divisor;
  of.mean = of.sum / divisor;
  const double logs[] = {
      -of.policy_mean,       -of.rollout_mean, of.rollout_mean - of.policy_mean,
      2.0 * Clamped(of.sum), Clamped(of.sum),  Clamped(of.mean)};
  Exponentials(logs, &row_exp_, &row_expm1_);
  of.policy_ppl = row_exp_[0];
  of.rollout_ppl = row_exp_[1];
  of.ppl_ratio = row_exp_[2];
  of.chi2 = row_expm1_[3];
  of.sequence = row_exp_[4];
  of.geometric = row_exp_[5];
  levels_ = of;
}

void SlimeMismatchPass::AddMis(std::span<const double> policy,
                               std::span<const double> rollout) {
  ReadLevels(policy, rollout);
  const double difference = levels_.rollout_mean - levels_.policy_mean;
  means_.AddValue(SlimeMean::kTrainingLogPpl, -levels_.policy_mean);
  means_.AddValue(SlimeMean::kTrainingPpl, levels_.policy_ppl);
  means_.AddValue(SlimeMean::kRolloutLogPpl, -levels_.rollout_mean);
  means_.AddValue(SlimeMean::kRolloutPpl, levels_.rollout_ppl);
  means_.AddSum(SlimeMean::kKl, -levels_.sum);
  means_.AddValue(SlimeMean::kLogPplDifference, difference);
  means_.AddValue(SlimeMean::kLogPplAbsDifference, std::fabs(difference));
  means_.AddValue(SlimeMean::kPplRatio, levels_.ppl_ratio);
  means_.AddValue(SlimeMean::kChi2Sequence, levels_.chi2);
  double k3 = 0.0, chi2 = 0.0;
  ForCounted([&](size_t i) {
    k3 += expm1_[i] - difference_[i];
    const double excess =
        std::clamp(expm1_[i], safe_.low - 1.0, safe_.high - 1.0);
    chi2 += excess * (2.0 + excess);
  });
  means_.AddSum(SlimeMean::kK3Kl, k3);
  means_.AddSum(SlimeMean::kChi2Token, chi2);
}

double SlimeMismatchPass::ClampedRatio(size_t i) const {
  if (correction_.level == Level::kToken) {
    return std::clamp(exp_[i], safe_.low, safe_.high);
  }
  return correction_.level == Level::kSequence ? levels_.sequence
                                               : levels_.geometric;
}

double SlimeMismatchPass::Bounded(double ratio) const {
  if (correction_.mode == SlimeTisMode::kMask) return ratio;
  const double below = std::min(ratio, correction_.bounds.high);
  return correction_.mode == SlimeTisMode::kClip
             ? std::max(below, correction_.bounds.low)
             : below;
}

void SlimeMismatchPass::AddWeights() {
  double before = 0.0, after = 0.0;
  double low = std::numeric_limits<double>::infinity(), high = 0.0;
  ForCounted([&](size_t i) {
    const double ratio = ClampedRatio(i);
    const double bounded = Bounded(ratio);
    before += ratio;
    after += bounded;
    low = std::min(low, bounded);
    high = std::max(high, bounded);
  });
  if (!(means_.tokens() > 0.0)) low = 0.0;
  means_.AddSum(SlimeMean::kBeforeBound, before);
  means_.AddSum(SlimeMean::kAfterBound, after);
  means_.AddSum(SlimeMean::kMeanAfterRejection, after);
  if (correction_.normalizes) {
    means_.AddValue(SlimeMean::kNormFactor, normalizer_);
  }
  means_.AddSum(SlimeMean::kMeanFinal, after / normalizer_);
  means_.AddValue(SlimeMean::kMinFinal, low / normalizer_);
  means_.AddValue(SlimeMean::kMaxFinal, high / normalizer_);
  const auto mode = static_cast<size_t>(correction_.mode);
  AddOutside(correction_.level, bounds_, kBelow[mode], kAbove[mode]);
  if (!correction_.rs) return;
  AddOutside(correction_.rs_level, rs_, SlimeMean::kRsMaskLow,
             SlimeMean::kRsMaskHigh);
  if (correction_.veto) AddVeto();
}

void SlimeMismatchPass::AddOutside(Level level, const LogInterval& interval,
                                   SlimeMean low, SlimeMean high) {
  const auto add = [this](SlimeMean mean, double sum) {
    if (mean != SlimeMean::kCount) means_.AddSum(mean, sum);
  };
  if (level != Level::kToken) {
    const double of_row =
        Clamped(level == Level::kSequence ? levels_.sum : levels_.mean);
    add(low, of_row < interval.low ? means_.tokens() : 0.0);
    add(high, of_row > interval.high ? means_.tokens() : 0.0);
    return;
  }
  int64_t below = 0, above = 0;
  ForCounted([&](size_t i) {
    below += Clamped(difference_[i]) < interval.low;
    above += Clamped(difference_[i]) > interval.high;
  });
  add(low, static_cast<double>(below));
  add(high, static_cast<double>(above));
}

// Its condition is on tokens, unclamped; a row with one is lost.
void SlimeMismatchPass::AddVeto() {
  int64_t below = 0;
  ForCounted([&](size_t i) { below += difference_[i] < veto_; });
  means_.AddSum(SlimeMean::kCatastrophicToken, static_cast<double>(below));
  means_.AddValue(SlimeMean::kCatastrophicSequence, below > 0 ? 1.0 : 0.0);
}

}  // namespace counterweight::server
