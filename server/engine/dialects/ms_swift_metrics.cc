#include "server/engine/dialects/ms_swift_metrics.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace counterweight::server {
namespace {

using kernels::BatchSums;
using kernels::Extrema;

double Real(int64_t count) { return static_cast<double>(count); }

class MsSwiftReporter {
 public:
  MsSwiftReporter(const MsSwiftReport& report, const BatchSums& sums,
                  MetricMap* metrics)
      : report_(report), sums_(sums), metrics_(*metrics), of_(sums) {}

  void Run() {
    if (report_.correction.measures) {
      AddDrift();
      if (report_.correction.weighs()) AddWeights();
    }
    if (report_.has_loss_metrics()) AddLoss();
  }

 private:
  void Add(std::string_view name, double value) {
    metrics_[Concat("rollout_correction/", name)] = value;
  }

  // Rows without a token count with a log perplexity of 0.
  void AddDrift() {
    const kernels::DriftSums& drift = sums_.drift;
    const kernels::PeerCorrectionSums& peers = sums_.peers.correction;
    const double empty = Real(sums_.num_sequences - sums_.nonempty_sequences);
    Add("training_ppl", (drift.numerator_ppl + empty) / of_.rows);
    Add("rollout_ppl", (drift.denominator_ppl + empty) / of_.rows);
    Add("training_log_ppl", peers.numerator_log_ppl / of_.rows);
    Add("rollout_log_ppl", peers.denominator_log_ppl / of_.rows);
    Add("kl", -drift.log_ratio / of_.tokens);
    AddK3();
    Add("log_ppl_diff", drift.log_ppl_difference / of_.rows);
    Add("log_ppl_abs_diff", drift.abs_log_ppl_difference / of_.rows);
    Extrema range = peers.log_ppl_difference_range;
    if (empty > 0.0) {
      range = {std::min(range.min, 0.0), std::max(range.max, 0.0)};
    }
    Add("log_ppl_diff_max", range.max);
    Add("log_ppl_diff_min", range.min);
    Add("ppl_ratio", 1.0 + drift.ppl_ratio_excess / of_.rows);
    // The mean of nothing is 0, and 1 is subtracted from it.
    Add("chi2_token",
        sums_.tokens == 0
            ? -1.0
            : (2.0 * drift.excess + drift.excess_squared) / of_.tokens);
  }

  // ms-swift bounds each addend at 10; without any beyond, the sum is its own.
  void AddK3() {
    constexpr double kLowest = -10.99;
    constexpr double kHighest = 2.61;
    const Extrema& range = sums_.drift.log_ratio_range;
    const bool is_bounded =
        sums_.tokens == 0 || (range.min >= kLowest && range.max <= kHighest);
    if (is_bounded) Add("k3_kl", sums_.drift.k3 / of_.tokens);
  }

  void AddWeights() {
    const kernels::WeightSums& weight = sums_.weight;
    switch (report_.correction.mode) {
      case MsSwiftMode::kNone:
        return;
      case MsSwiftMode::kTokenTruncate:
      case MsSwiftMode::kTokenMask:
        Add("is_weight_mean", weight.weight / of_.tokens);
        Add("clipped_frac", Real(weight.tokens_high) / of_.tokens);
        return;
      case MsSwiftMode::kSequenceTruncate:
        Add("is_weight_mean", weight.weight / of_.tokens);
        Add("clipped_frac", Real(weight.sequences_log_high) / of_.rows);
        return;
      case MsSwiftMode::kSequenceMask:
        // The sum is of tokens that OPSM kept.
        if (sums_.kept_tokens == sums_.tokens) {
          Add("is_weight_mean", weight.kept_weight / of_.tokens);
        }
        Add("clipped_frac", Real(sums_.rules[0].rows_high) / of_.rows);
        return;
    }
  }

  void AddLoss() {
    if (report_.is_mean_of_rows() && sums_.kept_tokens != sums_.num_sequences) {
      return;
    }
    // The sum of a weighted penalty is not that of the penalty.
    if (report_.has_kl() && !report_.loss.spec.kl.has_weight) {
      metrics_["kl"] = sums_.loss.kl / of_.kept;
    }
    AddMsSwiftClips(report_.loss.type,
                    Real(sums_.peers.loss.low_kept) / of_.kept,
                    Real(sums_.peers.loss.high_kept) / of_.kept, &metrics_);
  }

  const MsSwiftReport& report_;
  const BatchSums& sums_;
  MetricMap& metrics_;
  const MsSwiftDivisors of_;
};

}  // namespace

MsSwiftDivisors::MsSwiftDivisors(const BatchSums& sums)
    : rows(Real(std::max<int64_t>(sums.num_sequences, 1))),
      tokens(Real(std::max<int64_t>(sums.tokens, 1))),
      kept(Real(std::max<int64_t>(sums.kept_tokens, 1))) {}

void AddMsSwiftClips(MsSwiftLossType type, double low, double high,
                     MetricMap* metrics) {
  if (type == MsSwiftLossType::kSapo) return;
  if (type == MsSwiftLossType::kCispo) {
    (*metrics)["cispo_clip_ratio"] = high;
    return;
  }
  (*metrics)["clip_ratio/low_mean"] = (*metrics)["clip_ratio/low_min"] = low;
  (*metrics)["clip_ratio/high_mean"] = (*metrics)["clip_ratio/high_max"] = high;
  (*metrics)["clip_ratio/region_mean"] = low + high;
}

void AddMsSwiftMetrics(const MsSwiftReport& report, const BatchSums& sums,
                       MetricMap* metrics) {
  MsSwiftReporter(report, sums, metrics).Run();
}

}  // namespace counterweight::server
