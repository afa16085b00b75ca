#include "server/engine/dialects/nemo_rl_token_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace counterweight::server {
namespace {

using kernels::InputRole;
using kernels::KlEstimator;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A sum over tokens that count, and the range of the terms.
struct Terms {
  double sum = 0.0;
  double low = kInfinity;
  double high = -kInfinity;

  void Add(double x) {
    sum += x;
    low = std::min(low, x);
    high = std::max(high, x);
  }
};

class Pass {
 public:
  explicit Pass(const NemoRlReport& report) : report_(report) {}

  void Add(const RowTokens& row) {
    const std::span<const double> rollout = row.of(InputRole::kRollout);
    const std::span<const double> current = row.of(InputRole::kCurrent);
    if (report_.compares) Compare(row, OldOf(row), rollout);
    if (HasEntropy(row)) {
      Subtract(current, rollout, &difference_);
      Exponentials(difference_, &exp_, &expm1_);
      ForCounted(row, [&](size_t i) { entropy_.Add(-(exp_[i] * current[i])); });
    }
    if (!report_.has_loss || !report_.loss.is_reinforce) return;
    ForCounted(row, [&](size_t i) { ratio_.Add(current[i]); });
  }

  void Write(double tokens, bool has_entropy, MetricMap* metrics) const {
    if (report_.compares) {
      (*metrics)["token_mult_prob_error"] = error_.sum / tokens;
      (*metrics)["js_divergence_error"] = divergence_.sum / tokens;
      if (report_.loss.kl_type == KlEstimator::kK3) {
        (*metrics)["policy_kl_error"] = reverse_.sum / tokens;
      }
    }
    if (has_entropy) (*metrics)["approx_entropy"] = entropy_.sum / tokens;
    if (!report_.has_loss || !report_.loss.is_reinforce) return;
    WriteRange("probs_ratio", ratio_, tokens, metrics);
    // Without a ratio nothing is clamped either.
    WriteRange("probs_ratio_clamped", ratio_, tokens, metrics);
  }

  static bool HasEntropy(const RowTokens& row) {
    return !row.of(InputRole::kRollout).empty() &&
           !row.of(InputRole::kCurrent).empty();
  }

 private:
  std::span<const double> OldOf(const RowTokens& row) const {
    return row.of(report_.loss.is_on_policy ? InputRole::kCurrent
                                            : InputRole::kOld);
  }

  template <class F>
  static void ForCounted(const RowTokens& row, const F& f) {
    for (size_t i = 0; i < row.mask.size(); ++i) {
      if (row.mask[i] != 0) f(i);
    }
  }

  void Compare(const RowTokens& row, std::span<const double> old,
               std::span<const double> rollout) {
    Subtract(rollout, old, &difference_);
    Exponentials(difference_, &exp_, &expm1_);
    // The likelier policy over the middle m of both, without e^x of either.
    likelier_.resize(difference_.size());
    for (size_t i = 0; i < likelier_.size(); ++i) {
      likelier_[i] = 2.0 / (1.0 + Smaller(i));
    }
    Logarithms(likelier_, &log_);
    ForCounted(row, [&](size_t i) {
      reverse_.Add(expm1_[i] - difference_[i]);
      error_.Add(difference_[i] >= 0.0 ? exp_[i] : 1.0 / exp_[i]);
      // J(x) = e^(x - m) - (x - m) - 1 of both.
      const double other = log_[i] - std::fabs(difference_[i]);
      const double more = likelier_[i] - log_[i] - 1.0;
      const double less = likelier_[i] * Smaller(i) - other - 1.0;
      divergence_.Add(0.5 * (more + less));
    });
  }

  // e^-|d| of a token.
  double Smaller(size_t i) const {
    return difference_[i] >= 0.0 ? 1.0 / exp_[i] : exp_[i];
  }

  static void WriteRange(const std::string& name, const Terms& terms,
                         double tokens, MetricMap* metrics) {
    (*metrics)[name] = terms.sum / tokens;
    (*metrics)[name + "_min"] = terms.low;
    (*metrics)[name + "_max"] = terms.high;
  }

  const NemoRlReport& report_;
  Terms error_, reverse_, divergence_, entropy_, ratio_;
  RowNumbers difference_, exp_, expm1_, likelier_, log_;
};

}  // namespace

void AddNemoRlTokenMetrics(const NemoRlReport& report,
                           const CorrectedTokens& tokens,
                           const kernels::BatchSums& sums, MetricMap* metrics) {
  Pass pass(report);
  tokens.ForEachRow([&](const RowTokens& row) { pass.Add(row); });
  const double count =
      report.loss.tokens.value_or(static_cast<double>(sums.tokens)) +
      kNemoRlEpsilon;
  pass.Write(count,
             tokens.has(InputRole::kRollout) && tokens.has(InputRole::kCurrent),
             metrics);
}

}  // namespace counterweight::server
