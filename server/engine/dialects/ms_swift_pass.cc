#include "server/engine/dialects/ms_swift_pass.h"

#include <algorithm>
#include <span>

#include "kernels/sums.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;
using kernels::kSafetyClamp;
using kernels::LossLevel;

// ms-swift adds this to a divisor.
constexpr double kMsSwiftEpsilon = 1e-8;

double Within(double x, double clamp) { return std::clamp(x, -clamp, clamp); }

}  // namespace

double MsSwiftDriftPass::Weight(double ratio, double geometric) const {
  const double threshold = report_.correction.threshold;
  switch (report_.correction.mode) {
    case MsSwiftMode::kTokenMask:
      return ratio <= threshold ? ratio : 0.0;
    case MsSwiftMode::kSequenceTruncate:
      return std::min(geometric, threshold);
    case MsSwiftMode::kSequenceMask:
      return geometric <= threshold ? ratio : 0.0;
    case MsSwiftMode::kTokenTruncate:
    case MsSwiftMode::kNone:
      break;
  }
  return std::min(ratio, threshold);
}

void MsSwiftDriftPass::Add(const RowTokens& row) {
  constexpr double kLargestK3 = 10.0;
  const std::span<const double> policy =
      row.of(report_.has_old ? InputRole::kOld : InputRole::kCurrent);
  const std::span<const double> rollout = row.of(InputRole::kRollout);
  clamped_.resize(rollout.size());
  double tokens = 0.0;
  double sum = 0.0;
  double clamped_sum = 0.0;
  for (size_t i = 0; i < rollout.size(); ++i) {
    const double d = policy[i] - rollout[i];
    clamped_[i] = Within(d, kSafetyClamp);
    if (row.mask[i] == 0) continue;
    tokens += 1.0;
    sum += d;
    clamped_sum += clamped_[i];
  }
  Exponentials(clamped_, &ratio_, &expm1_);
  for (size_t i = 0; i < clamped_.size(); ++i) {
    if (row.mask[i] == 0) continue;
    k3_ += std::min(expm1_[i] - clamped_[i], kLargestK3);
  }
  const double divisor = std::max(tokens, 1.0);
  const double means[] = {2.0 * Within(sum / divisor, kSafetyClamp),
                          clamped_sum / divisor};
  Exponentials(means, &row_ratios_, &expm1_);
  row_squares_ += row_ratios_[0];
  if (!report_.correction.weighs()) return;
  const double threshold = report_.correction.threshold;
  for (size_t i = 0; i < ratio_.size(); ++i) {
    if (row.mask[i] == 0) continue;
    // With a threshold below 1 all weights are the threshold.
    const double weight =
        std::min(std::max(Weight(ratio_[i], row_ratios_[1]), 1.0 / threshold),
                 threshold);
    weights_ += weight;
    weight_squares_ += weight * weight;
  }
}

void MsSwiftDriftPass::Write(const MsSwiftDivisors& of,
                             MetricMap* metrics) const {
  (*metrics)["rollout_correction/k3_kl"] = k3_ / of.tokens;
  (*metrics)["rollout_correction/chi2_seq"] = row_squares_ / of.rows - 1.0;
  if (!report_.correction.weighs()) return;
  constexpr double kLeast = 1e-10;
  const double mean = weights_ / of.tokens + kMsSwiftEpsilon;
  const double square = weight_squares_ / of.tokens / (mean * mean);
  (*metrics)["rollout_correction/ess"] = 1.0 / std::max(square, kLeast);
}

void MsSwiftLossPass::Add(const RowTokens& row) {
  if (report_.has_kl()) AddKl(row);
  if (report_.is_mean_of_rows()) AddClips(row);
}

void MsSwiftLossPass::AddKl(const RowTokens& row) {
  const kernels::KlSpec& kl = report_.loss.spec.kl;
  const std::span<const double> ref = row.of(InputRole::kRef);
  const std::span<const double> current = row.of(InputRole::kCurrent);
  difference_.resize(ref.size());
  for (size_t i = 0; i < ref.size(); ++i) {
    difference_[i] = Within(ref[i] - current[i], kl.token_clamp);
  }
  Exponentials(difference_, &exp_, &expm1_);
  for (size_t i = 0; i < difference_.size(); ++i) {
    if (!IsCounted(row, i)) continue;
    kl_ += std::min(expm1_[i] - difference_[i], kl.value_clamp);
  }
}

// A row has at most one position. Its ratio is the sequence's ratio too: 1 for
// a sequence without a token.
void MsSwiftLossPass::AddClips(const RowTokens& row) {
  const kernels::LossSpec& loss = report_.loss.spec;
  const std::span<const double> advantages = row.of(InputRole::kAdvantages);
  const std::span<const double> current = row.of(InputRole::kCurrent);
  const std::span<const double> old = row.of(InputRole::kOld);
  difference_.assign(current.size(), 0.0);
  for (size_t i = 0; i < current.size(); ++i) {
    const bool has_ratio = loss.level == LossLevel::kToken || row.mask[i] != 0;
    if (report_.has_old && has_ratio) difference_[i] = current[i] - old[i];
  }
  Exponentials(difference_, &exp_, &expm1_);
  for (size_t i = 0; i < exp_.size(); ++i) {
    const double ratio = std::min(exp_[i], loss.ratio_cap);
    if (ratio < 1.0 - loss.clip_low && advantages[i] < 0.0) low_ += 1.0;
    if (ratio > 1.0 + loss.clip_high && advantages[i] > 0.0) high_ += 1.0;
  }
}

void MsSwiftLossPass::Write(const MsSwiftDivisors& of,
                            MetricMap* metrics) const {
  const bool is_mean_of_rows = report_.is_mean_of_rows();
  if (report_.has_kl()) {
    (*metrics)["kl"] = kl_ / (is_mean_of_rows ? of.rows : of.kept);
  }
  if (!is_mean_of_rows) return;
  AddMsSwiftClips(report_.loss.type, low_ / of.rows, high_ / of.rows, metrics);
}

}  // namespace counterweight::server
