#include "server/engine/dialects/nemo_rl_metrics.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace counterweight::server {
namespace {

using kernels::BatchSums;
using kernels::Extrema;
using kernels::KlEstimator;

class NemoRlReporter {
 public:
  NemoRlReporter(const NemoRlReport& report, const BatchSums& sums,
                 MetricMap* metrics)
      : report_(report),
        sums_(sums),
        metrics_(*metrics),
        tokens_(Denominator(report.loss.tokens, sums.tokens)),
        rows_(Denominator(report.loss.sequences, sums.nonempty_sequences)) {}

  void Run() {
    metrics_["num_valid_samples"] =
        static_cast<double>(sums_.nonempty_sequences);
    if (report_.compares) AddDrift();
    AddWeights();
    if (!report_.has_loss) return;
    metrics_["loss"] = sums_.loss.total;
    metrics_["kl_penalty"] = sums_.loss.kl_penalty;
    metrics_["positive_nll_loss"] = 0.0;
    // Without a ratio NeMo RL reports the log-probs themselves.
    if (!report_.loss.is_reinforce) AddRatios();
  }

 private:
  static double Denominator(const std::optional<double>& given,
                            int64_t counted) {
    return given.value_or(static_cast<double>(counted)) + kNemoRlEpsilon;
  }

  void AddRange(const std::string& name, const Extrema& range) {
    metrics_[name + "_min"] = range.min;
    metrics_[name + "_max"] = range.max;
  }

  void AddRatios() {
    const kernels::LossSpec& spec = report_.loss.spec;
    const Extrema& range = sums_.loss.ratio_range;
    metrics_["probs_ratio"] = sums_.loss.ratio / tokens_;
    AddRange("probs_ratio", range);
    metrics_["probs_ratio_clamped"] = sums_.peers.loss.clipped_ratio / tokens_;
    const auto clipped = [&](double ratio) {
      return sums_.tokens == 0
                 ? ratio
                 : std::clamp(ratio, 1.0 - spec.clip_low, 1.0 + spec.clip_high);
    };
    AddRange("probs_ratio_clamped", {clipped(range.min), clipped(range.max)});
  }

  // Between old and rollout, by the penalty's type; the other direction of k3
  // has no sum.
  void AddDrift() {
    const kernels::DriftSums& drift = sums_.drift;
    const KlEstimator type = report_.loss.kl_type;
    if (type == KlEstimator::kK3) {
      metrics_["gen_kl_error"] = drift.k3 / tokens_;
      return;
    }
    const bool is_k1 = type == KlEstimator::kK1;
    const double k1 = drift.log_ratio / tokens_;
    const double k2 = drift.k2 / tokens_;
    metrics_["gen_kl_error"] = is_k1 ? -k1 : k2;
    metrics_["policy_kl_error"] = is_k1 ? k1 : k2;
  }

  // The weight after truncation, used or not.
  void AddWeights() {
    constexpr const char* kName = "sampling_importance_ratio";
    const NemoRlCorrection& correction = report_.correction;
    const kernels::DriftSums& drift = sums_.drift;
    if (!correction.weighs) {
      if (correction.by_sequence || !report_.compares) return;
      metrics_[kName] =
          (drift.k3 + drift.log_ratio + static_cast<double>(sums_.tokens)) /
          tokens_;
      return;
    }
    if (!correction.by_sequence) {
      metrics_[kName] = sums_.weight.kept_weight / tokens_;
    } else if (!correction.Rejects()) {
      metrics_[kName] = (static_cast<double>(sums_.nonempty_sequences) +
                         sums_.weight.sequence_excess) /
                        rows_;
    }
    AddOutside();
  }

  void AddOutside() {
    constexpr const char* kName = "is_oob_ratio";
    const kernels::RuleSums& rule = sums_.rules[0];
    switch (report_.correction.truncation) {
      case NemoRlTruncation::kNone:
        return;
      case NemoRlTruncation::kTis:
        metrics_[kName] =
            static_cast<double>(sums_.weight.tokens_outside) / tokens_;
        return;
      case NemoRlTruncation::kIcepop:
        metrics_[kName] =
            static_cast<double>(rule.tokens_high + rule.tokens_low) / tokens_;
        return;
      case NemoRlTruncation::kSeqMaskTis:
        metrics_[kName] =
            static_cast<double>(rule.rows_high + rule.rows_low) / rows_;
        return;
    }
  }

  const NemoRlReport& report_;
  const BatchSums& sums_;
  MetricMap& metrics_;
  const double tokens_;
  const double rows_;
};

}  // namespace

void AddNemoRlMetrics(const NemoRlReport& report, const BatchSums& sums,
                      MetricMap* metrics) {
  NemoRlReporter(report, sums, metrics).Run();
}

}  // namespace counterweight::server
