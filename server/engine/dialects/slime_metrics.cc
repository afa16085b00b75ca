#include "server/engine/dialects/slime_metrics.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace counterweight::server {
namespace {

using kernels::BatchSums;
using kernels::Level;
using kernels::RatioSource;
using kernels::RuleSums;

// A sum, or none.
using SlimeSum = std::optional<double>;

// exp(20) in float32, the largest ratio of miles.
constexpr double kMilesLargestRatio = 485165184.0;

double ToReal(int64_t count) { return static_cast<double>(count); }

class SlimeReporter {
 public:
  SlimeReporter(const SlimeReport& report, const BatchSums& sums,
                MetricMap* metrics)
      : report_(report),
        sums_(sums),
        metrics_(*metrics),
        tokens_(ToReal(sums.tokens)),
        rows_(ToReal(sums.nonempty_sequences)) {}

  void Run() {
    if (report_.spec.loss.surrogate != kernels::Surrogate::kNone) AddLoss();
    if (!report_.correction.measures) return;
    if (report_.correction.function == SlimeFunction::kMis) {
      AddMismatch();
      if (report_.correction.weighs) AddWeights();
    } else {
      AddTis();
    }
  }

 private:
  // `of_rows` is the sum of the rows' means, `of_tokens` that of all tokens.
  void Add(const std::string& name, SlimeSum of_rows, SlimeSum of_tokens) {
    const SlimeReduction& reduction = report_.loss.reduction;
    if (!reduction.by_token && !reduction.divisors.empty()) return;
    const SlimeSum sum = reduction.by_token ? of_tokens : of_rows;
    if (sum) metrics_[name] = *sum / SlimeCount(reduction, sums_);
  }
  void AddMis(std::string_view name, SlimeSum of_rows, SlimeSum of_tokens) {
    Add(Concat("mis_", name), of_rows, of_tokens);
  }

  // Quantities of a row have the same sums of rows' means as of rows.
  static SlimeSum OfRow(Level level, double sum) {
    return level == Level::kToken ? SlimeSum() : SlimeSum(sum);
  }

  void AddLoss() {
    const kernels::LossSums& loss = sums_.loss;
    metrics_["loss"] = loss.total;
    metrics_["pg_loss"] = loss.policy;
    if (report_.loss.has_kl) metrics_["kl_loss"] = loss.kl_penalty;
    const bool drops = report_.correction.Drops();
    AddPolicyKl(drops);
    AddClipFraction(drops);
    AddDifference(drops);
    if (report_.correction.measures) AddPolicyRatio();
    if (report_.loss.has_opsm) {
      Add("opsm_clipfrac", {},
          ToReal(sums_.rules[report_.spec.num_rules - 1].dropped_tokens));
    }
  }

  bool IsSelf() const {
    return report_.spec.loss.source == RatioSource::kCurrentSelf;
  }

  // Minus the log ratio, of gspo the row's, over kept tokens.
  void AddPolicyKl(bool drops) {
    if (IsSelf()) return Add("ppo_kl", 0.0, 0.0);
    const bool is_drift =
        report_.spec.loss.source == report_.spec.drift_source && !drops;
    SlimeSum of_tokens = -sums_.loss.log_ratio_kept;
    if (report_.loss.is_gspo && drops) of_tokens.reset();
    Add("ppo_kl",
        is_drift ? SlimeSum(sums_.drift.log_ppl_difference) : std::nullopt,
        of_tokens);
  }

  void AddClipFraction(bool drops) {
    const kernels::PeerLossSums& peers = sums_.peers.loss;
    const bool by_sign = !report_.loss.is_cispo && !drops;
    Add("pg_clipfrac",
        by_sign ? SlimeSum(peers.row_high + peers.row_low) : std::nullopt,
        ToReal(peers.clipped_kept));
  }

  // |old - rollout|, which is 0 for miles where they are one; slime then takes
  // the current log-probs.
  void AddDifference(bool drops) {
    constexpr const char* kName = "train_rollout_logprob_abs_diff";
    if (!report_.has_rollout) return;
    const bool rollout_is_old = report_.policies.rollout_is_old;
    if (rollout_is_old && report_.is_miles) return Add(kName, 0.0, 0.0);
    const RatioSource source = rollout_is_old ? RatioSource::kCurrentRollout
                                              : report_.policies.Correction();
    const bool is_drift = source == report_.spec.drift_source && !drops;
    Add(kName, {},
        is_drift ? SlimeSum(sums_.drift.abs_log_ratio) : std::nullopt);
  }

  // exp of the log ratio before miles' clamp.
  void AddPolicyRatio() {
    const bool is_clamped =
        report_.is_miles && !(sums_.loss.ratio_range.max < kMilesLargestRatio);
    Add("ois", IsSelf() ? SlimeSum(rows_) : std::nullopt,
        is_clamped ? std::nullopt : SlimeSum(sums_.loss.ratio));
  }

  void AddTis() {
    const kernels::DriftSums& drift = sums_.drift;
    Add("tis", {}, drift.k3 + drift.log_ratio + tokens_);
    Add("tis_clipfrac", {}, ToReal(sums_.weight.tokens_outside));
  }

  void AddMismatch() {
    const kernels::DriftSums& drift = sums_.drift;
    const kernels::PeerCorrectionSums& peers = sums_.peers.correction;
    AddMis("training_log_ppl", peers.numerator_log_ppl, {});
    AddMis("training_ppl", drift.numerator_ppl, {});
    AddMis("rollout_log_ppl", peers.denominator_log_ppl, {});
    AddMis("rollout_ppl", drift.denominator_ppl, {});
    AddMis("kl", drift.log_ppl_difference, -drift.log_ratio);
    AddMis("k3_kl", {}, drift.k3);
    AddMis("log_ppl_diff", drift.log_ppl_difference, -drift.log_ratio);
    AddMis("log_ppl_abs_diff", drift.abs_log_ppl_difference, {});
    AddMis("ppl_ratio", rows_ + drift.ppl_ratio_excess, {});
    AddMis("chi2_token", {}, 2.0 * drift.excess + drift.excess_squared);
    AddMis("chi2_seq", drift.chi2_sequence, {});
  }

  void AddWeights() {
    const SlimeCorrection& correction = report_.correction;
    const kernels::WeightSums& weight = sums_.weight;
    const double of_rows = rows_ + weight.sequence_excess;
    const bool is_token = correction.level == Level::kToken;
    if (correction.MasksByWeight()) {
      AddMis("tis_weight_before_bound", of_rows, weight.weight);
    } else {
      AddMis("tis_weight_before_bound", {},
             is_token ? SlimeSum(tokens_ + sums_.drift.excess) : std::nullopt);
    }
    AddMis("tis_weight_after_bound", of_rows, weight.weight);
    AddMis("is_ratio_mean_after_tis_rs", of_rows, weight.weight);
    AddOutside();
    AddRejection();
    const double mean = weight.normalizer;
    if (correction.normalizes) {
      AddMis("batch_norm_factor", rows_ * mean, tokens_ * mean);
    }
    AddMis("is_ratio_mean_final", of_rows / mean, weight.weight / mean);
    if (is_token) return;
    // A row's least and largest weight are its only one.
    AddMis("is_ratio_min_final", of_rows / mean, weight.weight / mean);
    AddMis("is_ratio_max_final", of_rows / mean, weight.weight / mean);
  }

  void AddOutside() {
    const SlimeCorrection& correction = report_.correction;
    const kernels::WeightSums& weight = sums_.weight;
    const kernels::PeerCorrectionSums& peers = sums_.peers.correction;
    const SlimeSum high = OfRow(correction.level, ToReal(peers.sequences_high));
    if (correction.MasksByWeight()) {
      AddRule("tis_mask_fraction", correction.level, sums_.rules[0]);
    } else if (correction.mode == SlimeTisMode::kTruncate) {
      AddMis("tis_truncate_fraction", high, ToReal(weight.tokens_high));
    } else {
      // Without a lower bound the kernels count below 1 / upper.
      const bool has_low = report_.spec.weight.lower > 0.0;
      AddMis(
          "tis_clip_fraction_low",
          OfRow(correction.level, has_low ? ToReal(peers.sequences_low) : 0.0),
          has_low ? ToReal(weight.tokens_low) : 0.0);
      AddMis("tis_clip_fraction_high", high, ToReal(weight.tokens_high));
    }
  }

  void AddRule(std::string_view name, Level level, const RuleSums& rule) {
    AddMis(Concat(name, "_low"), OfRow(level, ToReal(rule.rows_low)),
           ToReal(rule.tokens_low));
    AddMis(Concat(name, "_high"), OfRow(level, ToReal(rule.rows_high)),
           ToReal(rule.tokens_high));
  }

  void AddRejection() {
    const SlimeCorrection& correction = report_.correction;
    if (!correction.rs) return;
    int r = correction.MasksByWeight() ? 1 : 0;
    AddRule("rs_mask_fraction", correction.rs_level, sums_.rules[r++]);
    if (!correction.veto) return;
    const RuleSums& veto = sums_.rules[r];
    AddMis("rs_catastrophic_seq_fraction", ToReal(veto.rows_low),
           ToReal(veto.tokens_low));
  }

  const SlimeReport& report_;
  const BatchSums& sums_;
  MetricMap& metrics_;
  const double tokens_;
  const double rows_;  // with tokens
};

}  // namespace

double SlimeCount(const SlimeReduction& reduction, const BatchSums& sums) {
  const int64_t rows = reduction.rollouts.value_or(sums.num_sequences);
  const int64_t tokens =
      sums.tokens + sums.num_sequences - sums.nonempty_sequences;
  return ToReal(std::max<int64_t>(reduction.by_token ? tokens : rows, 1));
}

void AddSlimeMetrics(const SlimeReport& report, const BatchSums& sums,
                     MetricMap* metrics) {
  SlimeReporter(report, sums, metrics).Run();
}

}  // namespace counterweight::server
