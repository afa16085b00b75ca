#include "server/engine/dialects/slime_token_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "server/engine/dialects/slime_means.h"
#include "server/engine/dialects/slime_mismatch_pass.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;
using kernels::kSafetyClamp;

class SlimePass {
 public:
  SlimePass(const SlimeReport& report, const kernels::BatchSums& sums)
      : report_(report),
        means_(report.loss.reduction),
        mismatch_(report.correction, sums.weight.normalizer, &means_) {}

  void Add(const RowTokens& row) {
    means_.StartRow(row);
    if (report_.spec.loss.surrogate != kernels::Surrogate::kNone) {
      AddPolicy(row);
      if (report_.has_rollout) AddDifference(row);
      if (report_.is_miles && report_.has_rollout) AddRolloutKl(row);
    }
    if (report_.correction.measures) mismatch_.Add(row, Corrected(row));
  }

  void Write(double count, MetricMap* metrics) const {
    means_.Write(count, metrics);
  }

 private:
  // The policy that the correction compares with the rollout's.
  std::span<const double> Corrected(const RowTokens& row) const {
    return row.of(report_.policies.current_is_old ? InputRole::kCurrent
                                                  : InputRole::kOld);
  }

  std::span<const double> LossOld(const RowTokens& row) const {
    return report_.policies.rollout_is_old ? row.of(InputRole::kRollout)
                                           : Corrected(row);
  }

  double RowMean(const RowTokens& row) const {
    double sum = 0.0;
    for (size_t i = 0; i < row.mask.size(); ++i) {
      if (row.mask[i] != 0) sum += difference_[i];
    }
    return sum / means_.own_divisor();
  }

  // Tokens with a surrogate of 0, by log ratios of the loss.
  void AddOpsm(const RowTokens& row) {
    const kernels::CorrectionSpec& spec = report_.spec;
    const bool is_far = RowMean(row) < spec.rules[spec.num_rules - 1].lower;
    const std::span<const double> advantages = row.of(InputRole::kAdvantages);
    int64_t dropped = 0;
    for (size_t i = 0; is_far && i < row.mask.size(); ++i) {
      dropped += row.mask[i] != 0 && advantages[i] < 0.0;
    }
    means_.AddOwnSum(SlimeMean::kOpsmFraction, static_cast<double>(dropped));
  }

  // By the ratio's clipping; strict, as there.
  bool IsClipped(double ratio, double advantage) const {
    const kernels::LossSpec& loss = report_.spec.loss;
    const double clipped =
        std::clamp(ratio, 1.0 - loss.clip_low, 1.0 + loss.clip_high);
    if (report_.loss.is_cispo) return clipped != ratio;
    return -clipped * advantage > -ratio * advantage;
  }

  void AddPolicy(const RowTokens& row) {
    Subtract(row.of(InputRole::kCurrent), LossOld(row), &difference_);
    if (report_.loss.has_opsm) AddOpsm(row);
    if (report_.loss.is_gspo) {
      std::fill(difference_.begin(), difference_.end(), RowMean(row));
    }
    Exponentials(difference_, &exp_, &expm1_);
    const std::span<const double> advantages = row.of(InputRole::kAdvantages);
    double raw = 0.0, ratios = 0.0, squares = 0.0, kl = 0.0;
    int64_t clipped = 0;
    for (size_t i = 0; i < row.mask.size(); ++i) {
      if (row.mask[i] == 0) continue;
      const double ratio = report_.is_miles
                               ? std::clamp(exp_[i], safe_.low, safe_.high)
                               : exp_[i];
      raw += exp_[i];
      ratios += ratio;
      squares += ratio * ratio;
      if (row.keep[i] == 0) continue;
      kl -= difference_[i];
      clipped += IsClipped(ratio, advantages[i]);
    }
    means_.AddSum(SlimeMean::kPolicyKl, kl);
    means_.AddSum(SlimeMean::kClipFraction, static_cast<double>(clipped));
    if (report_.correction.measures) {
      means_.AddSum(SlimeMean::kPolicyRatio, raw);
    }
    if (!report_.is_miles) return;
    constexpr double kLeastSquares = 1e-8;
    means_.AddOwnSum(SlimeMean::kEffectiveSize,
                     ratios * ratios / std::max(squares, kLeastSquares));
  }

  // With use_rollout_logprobs slime compares the current log-probs, and miles
  // the rollout's with themselves.
  void SubtractRollout(const RowTokens& row) {
    const std::span<const double> rollout = row.of(InputRole::kRollout);
    if (!report_.policies.rollout_is_old) {
      Subtract(Corrected(row), rollout, &difference_);
    } else {
      Subtract(report_.is_miles ? rollout : row.of(InputRole::kCurrent),
               rollout, &difference_);
    }
  }

  void AddDifference(const RowTokens& row) {
    SubtractRollout(row);
    double sum = 0.0;
    for (size_t i = 0; i < row.keep.size(); ++i) {
      if (IsKept(row, i)) sum += std::fabs(difference_[i]);
    }
    means_.AddSum(SlimeMean::kDifference, sum);
  }

  // k3, its log ratio and itself bounded; miles' alone.
  void AddRolloutKl(const RowTokens& row) {
    constexpr double kLargest = 10.0;
    for (double& x : difference_) {
      x = std::clamp(x, -kSafetyClamp, kSafetyClamp);
    }
    Exponentials(difference_, &exp_, &expm1_);
    double sum = 0.0;
    for (size_t i = 0; i < row.keep.size(); ++i) {
      if (IsKept(row, i)) {
        sum += std::min(expm1_[i] - difference_[i], kLargest);
      }
    }
    means_.AddSum(SlimeMean::kRolloutKl, sum);
  }

  static bool IsKept(const RowTokens& row, size_t i) {
    return row.mask[i] != 0 && row.keep[i] != 0;
  }

  const SlimeReport& report_;
  SlimeMeans means_;
  SlimeMismatchPass mismatch_;
  const SlimeInterval safe_ = SafeRatios();
  RowNumbers difference_, exp_, expm1_;
};

}  // namespace

void AddSlimeTokenMetrics(const SlimeReport& report,
                          const CorrectedTokens& tokens,
                          const kernels::BatchSums& sums, MetricMap* metrics) {
  SlimePass pass(report, sums);
  tokens.ForEachRow([&](const RowTokens& row) { pass.Add(row); });
  pass.Write(SlimeCount(report.loss.reduction, sums), metrics);
}

}  // namespace counterweight::server
