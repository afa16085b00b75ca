#include "server/engine/dialects/verl_loss_metrics.h"

#include <limits>

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::BatchSums;
using kernels::LossSpec;
using kernels::LossSums;

// verl adds 1e-8 to the count, which matters only where it is 0.
double MeanOverKept(double sum, const BatchSums& sums) {
  if (sums.kept_tokens == 0) return 0.0;
  return sum / static_cast<double>(sums.kept_tokens);
}

double FractionOfKept(int64_t tokens, const BatchSums& sums) {
  return MeanOverKept(static_cast<double>(tokens), sums);
}

// True if agg_loss divides by 0: an absent count.
bool HasNothingToAverage(BatchCount count, const BatchSums& sums) {
  switch (count) {
    case BatchCount::kKeptTokens:
    case BatchCount::kKeptRows:
      return sums.kept_tokens == 0;
    case BatchCount::kTokens:
    case BatchCount::kNonemptyRows:
      return sums.tokens == 0;
    case BatchCount::kOne:
    case BatchCount::kRowTokens:
    case BatchCount::kRows:
    case BatchCount::kGroups:
      return false;
  }
  return false;
}

void AddPpoKl(VerlPpoKl which, const BatchSums& sums, MetricMap* metrics) {
  const LossSums& loss = sums.loss;
  const auto add = [&](double sum) {
    (*metrics)["actor/ppo_kl"] = MeanOverKept(sum, sums);
  };
  switch (which) {
    case VerlPpoKl::kNone:
      return;
    // Subtracts from zero, so that the result is never -0.
    case VerlPpoKl::kMean:
      return add(0.0 - loss.log_ratio_kept);
    case VerlPpoKl::kClampedMean:
      return add(0.0 - sums.peers.loss.safe_log_ratio_kept);
    case VerlPpoKl::kAbsoluteMean:
      return add(sums.peers.loss.abs_log_ratio_kept);
  }
}

void AddClipFractions(VerlClipFraction which, const BatchSums& sums,
                      MetricMap* metrics) {
  const kernels::PeerLossSums& peers = sums.peers.loss;
  const auto add = [&](const char* name, int64_t tokens) {
    (*metrics)[name] = FractionOfKept(tokens, sums);
  };
  constexpr const char* kUpper = "actor/pg_clipfrac";
  constexpr const char* kLower = "actor/pg_clipfrac_lower";
  switch (which) {
    case VerlClipFraction::kNone:
      return;
    case VerlClipFraction::kUpperOnly:
      return add(kUpper, peers.clipped_kept);
    case VerlClipFraction::kBoth:
      // In verl's DPPO a token without advantage can be outside as well.
      add(kUpper, peers.clipped_kept + peers.clipped_zero_kept);
      return add(kLower, sums.loss.capped_kept);
    case VerlClipFraction::kBySign:
      add(kUpper, peers.high_kept);
      return add(kLower, peers.low_kept);
  }
}

}  // namespace

void AddVerlLossMetrics(const VerlLossMetrics& which, const LossSpec& spec,
                        const BatchSums& sums, MetricMap* metrics) {
  AddPpoKl(which.ppo_kl, sums, metrics);
  AddClipFractions(which.clip_fraction, sums, metrics);
  if (spec.kl.estimator == kernels::KlEstimator::kNone) return;
  (*metrics)["kl_loss"] = HasNothingToAverage(spec.kl.reduction.count, sums)
                              ? std::numeric_limits<double>::quiet_NaN()
                              : sums.loss.kl_penalty;
  (*metrics)["kl_coef"] = spec.kl.coefficient;
}

}  // namespace counterweight::server
