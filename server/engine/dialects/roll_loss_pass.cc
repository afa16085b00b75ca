#include "server/engine/dialects/roll_loss_pass.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/log_ratio.h"
#include "server/engine/names.h"

namespace counterweight::server {

using kernels::InputRole;
using kernels::Surrogate;

void RollMoments::Add(double x, double count) {
  if (count <= 0.0) return;
  count_ += count;
  const double distance = x - mean_;
  mean_ += distance * count / count_;
  squares_ += distance * (x - mean_) * count;
}

double RollMoments::Deviation() const {
  return count_ > 1.0 ? std::sqrt(squares_ / (count_ - 1.0)) : kNan;
}

double RollLossPass::Bounded(double ratio) const {
  return std::min(std::max(ratio, 1.0 - loss_.spec.clip_low),
                  1.0 + loss_.spec.clip_high);
}

void RollLossPass::Add(const RowTokens& row) {
  Subtract(row.of(InputRole::kCurrent), row.of(InputRole::kOld), &log_ratio_);
  double kept = 0.0;
  double log_ratio = 0.0;
  for (size_t i = 0; i < log_ratio_.size(); ++i) {
    if (row.keep[i] == 0) continue;
    kept += 1.0;
    log_ratio += log_ratio_[i];
  }
  ReadRatios(row, log_ratio, kept);
  if (kept > 0.0) AddKept(row, kept);
  AddOutside(row);
  if (loss_.variant == RollVariant::kKimi15) AddLogarithms(row);
}

void RollLossPass::ReadRatios(const RowTokens& row, double log_ratio,
                              double kept) {
  if (loss_.spec.level != kernels::LossLevel::kSequence) {
    Exponentials(log_ratio_, &ratio_, &expm1_);
    return;
  }
  const double mean = log_ratio / (kept + kRollEpsilon);
  Exponentials({&mean, 1}, &ratio_, &expm1_);
  // Kept for a row without positions too, which the padded batch has.
  ratio_.resize(std::max<size_t>(row.mask.size(), 1), ratio_[0]);
}

void RollLossPass::AddKept(const RowTokens& row, double kept) {
  const std::span<const double> advantages = row.of(InputRole::kAdvantages);
  double square = 0.0, log_ratio = 0.0, clipped = 0.0;
  double ratio = 0.0, bounded = 0.0;
  for (size_t i = 0; i < row.keep.size(); ++i) {
    if (row.keep[i] == 0) continue;
    const double r = ratio_[i];
    square += 0.5 * log_ratio_[i] * log_ratio_[i];
    log_ratio += log_ratio_[i];
    ratio += r;
    bounded += Bounded(r);
    if (Bounded(r) * advantages[i] < r * advantages[i]) clipped += 1.0;
    range_ = {std::min(range_.min, r), std::max(range_.max, r)};
  }
  const double divisor = kept + kRollEpsilon;
  ratio_mean_ += ratio / divisor;
  bounded_mean_ += bounded / divisor;
  const double factor = IsMeanOfMeans() ? divisor : 1.0;
  square_ += square / factor;
  log_ratio_sum_ += log_ratio / factor;
  clipped_ += clipped / factor;
}

// A row's ratio is that of every position, a token's 1 where it is masked.
void RollLossPass::AddOutside(const RowTokens& row) {
  const auto add = [&](double ratio, double count) {
    if (ratio < 1.0 - loss_.spec.clip_low) low_ += count;
    if (ratio > 1.0 + loss_.spec.clip_high) high_ += count;
  };
  if (loss_.spec.level == kernels::LossLevel::kSequence) {
    add(ratio_[0], of_.width);
    return;
  }
  for (size_t i = 0; i < row.mask.size(); ++i) {
    if (row.mask[i] != 0) add(ratio_[i], 1.0);
  }
}

void RollLossPass::AddLogarithms(const RowTokens& row) {
  const std::span<const double> advantages = row.of(InputRole::kAdvantages);
  RowNumbers& shifted = expm1_;  // which is free
  shifted.resize(ratio_.size());
  for (size_t i = 0; i < ratio_.size(); ++i) {
    shifted[i] = ratio_[i] + kRollEpsilon;
  }
  Logarithms(shifted, &log_);
  for (size_t i = 0; i < row.mask.size(); ++i) {
    if (row.mask[i] == 0) continue;
    q_.Add(log_[i], 1.0);
    absolute_ += std::fabs(log_[i]);
    slope_ += std::fabs(advantages[i] * log_[i]);
    q_squared_ += log_[i] * log_[i];
  }
}

void RollLossPass::Write(const kernels::BatchSums& sums, MetricMap* metrics) {
  constexpr double kMasked = 1e10;
  const double divisor = of_.OfLoss(loss_.aggregation);
  const bool has_rest = static_cast<double>(sums.kept_tokens) <
                        static_cast<double>(sums.num_sequences) * of_.width;
  MetricMap& of = *metrics;
  of["actor/approxkl@sum"] = square_ / divisor;
  if (IsMeanOfMeans()) of["actor/policykl@sum"] = log_ratio_sum_ / divisor;
  of["actor/ratio_mean@sum"] = ratio_mean_ / of_.rows;
  of["actor/ratio_min@min"] =
      has_rest ? std::min(range_.min, kMasked) : range_.min;
  of["actor/ratio_max@max"] = has_rest ? std::max(range_.max, 0.0) : range_.max;
  if (loss_.spec.surrogate == Surrogate::kPpoClip) {
    of["actor/ppo_ratio_low_clipfrac@sum"] = low_ / of_.tokens;
    of["actor/ppo_ratio_high_clipfrac@sum"] = high_ / of_.tokens;
    of["actor/ppo_ratio_clipfrac@sum"] = (low_ + high_) / of_.tokens;
  }
  WriteVariant(sums, metrics);
}

void RollLossPass::WriteVariant(const kernels::BatchSums& sums,
                                MetricMap* metrics) {
  switch (loss_.variant) {
    case RollVariant::kVanilla:
    case RollVariant::kPpo:
      return;
    case RollVariant::kWorker:
      // The other modes' is a sum over tokens.
      if (IsMeanOfMeans())
        (*metrics)["actor/clipfrac@sum"] = clipped_ / of_.rows;
      return;
    case RollVariant::kTis:
      (*metrics)["actor/tis_clipped_ratio_mean@sum"] = bounded_mean_ / of_.rows;
      return WriteShares("tis", metrics);
    case RollVariant::kCispo:
      (*metrics)["actor/cispo_clipped_ratio_mean"] =
          bounded_mean_ /
          std::max(static_cast<double>(sums.num_sequences), 1.0);
      return WriteShares("cispo_cispo", metrics);
    case RollVariant::kKimi15:
      return WriteLogarithms(metrics);
  }
}

void RollLossPass::WriteShares(std::string_view prefix,
                               MetricMap* metrics) const {
  const double masked = loss_.spec.clip_high < 0.0 ? of_.masked : 0.0;
  (*metrics)[Concat("actor/", prefix, "_lower_clipfrac")] =
      low_ / of_.positions();
  (*metrics)[Concat("actor/", prefix, "_upper_clipfrac")] =
      (high_ + masked) / of_.positions();
}

void RollLossPass::WriteLogarithms(MetricMap* metrics) {
  constexpr std::string_view kPrefix = "actor/kimi15_kimi15_";
  // A masked position has r = 1 and no advantage.
  const double masked = kernels::LogRatio(1.0 + kRollEpsilon);
  q_.Add(masked, of_.masked);
  absolute_ += of_.masked * masked;
  q_squared_ += of_.masked * masked * masked;
  const double slope = slope_ / of_.positions();
  const double penalty = 0.5 * loss_.spec.beta * q_squared_ / of_.positions();
  (*metrics)[Concat(kPrefix, "log_ratio_std")] = q_.Deviation();
  (*metrics)[Concat(kPrefix, "log_ratio_abs_mean")] =
      absolute_ / of_.positions();
  (*metrics)[Concat(kPrefix, "policy_grad_magnitude")] = slope;
  (*metrics)[Concat(kPrefix, "kl_reg_magnitude")] = penalty;
  (*metrics)[Concat(kPrefix, "reg_ratio")] = penalty / (slope + kRollEpsilon);
}

}  // namespace counterweight::server
