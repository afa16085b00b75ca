#include "server/engine/dialects/roll_metrics.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "server/engine/names.h"

namespace counterweight::server {
namespace {

using kernels::BatchSums;
using kernels::Extrema;
using kernels::LossSpec;

double RollReal(int64_t count) { return static_cast<double>(count); }

class RollReporter {
 public:
  RollReporter(const RollReport& report, const BatchSums& sums,
               MetricMap* metrics)
      : report_(report),
        sums_(sums),
        metrics_(*metrics),
        of_(report, sums),
        keeps_all_(sums.kept_tokens == sums.tokens) {}

  void Run() {
    AddWeights();
    AddFilters();
    if (!report_.has_loss) return;
    AddLosses();
    AddRatios();
    AddSamples();
    AddVariant();
  }

 private:
  void Add(std::string_view name, double value) {
    metrics_[Concat("actor/", name)] = value;
  }

  // The positions of rows; empty ones have the neutral value.
  double Positions(int64_t nonempty, bool has_empty) const {
    const int64_t empty = sums_.num_sequences - sums_.nonempty_sequences;
    return of_.width * RollReal(nonempty + (has_empty ? empty : 0));
  }

  void AddWeights() {
    const RollCorrection& correction = report_.correction;
    const kernels::WeightSums& weight = sums_.weight;
    if (!correction.weighs) return;
    if (weight.tokens_outside == 0) {
      Add(Concat("train_infer_ratio_", RollLevelName(correction.level),
                 "_mean@sum"),
          (RollReal(sums_.nonempty_sequences) + weight.sequence_excess) /
              of_.rows);
    }
    if (correction.upper == kernels::kUnbounded) return;
    const bool bounds_one = correction.upper < 1.0;
    const double clipped =
        IsByToken(correction.level)
            ? RollReal(weight.tokens_high) + (bounds_one ? of_.masked : 0.0)
            : Positions(weight.sequences_log_high, bounds_one);
    Add("is_weight_clipfrac@sum", clipped / of_.tokens);
  }

  // ROLL counts masked positions too. A later filter of a level overwrites.
  void AddFilters() {
    int rule = 0;
    for (const RollFilter& filter : report_.correction.filters) {
      const kernels::RuleSums& sums = sums_.rules[rule++];
      const std::string_view kind = filter.is_difference ? "diff" : "ratio";
      const double neutral = filter.is_difference ? 0.0 : 1.0;
      const bool has_neutral = filter.low <= neutral && neutral <= filter.high;
      const double passed =
          IsByToken(filter.level)
              ? RollReal(sums_.tokens - sums.tokens_high - sums.tokens_low) +
                    (has_neutral ? of_.masked : 0.0)
              : Positions(
                    sums_.nonempty_sequences - sums.rows_high - sums.rows_low,
                    has_neutral);
      Add(Concat("train_infer_", RollLevelName(filter.level), "_", kind,
                 "_mask_mean@sum"),
          passed / of_.tokens);
      if (filter.is_difference) {
        Add(Concat("train_infer_diff_", RollLevelName(filter.level),
                   "_mean@sum"),
            sums.row_sum / of_.rows);
      }
    }
    if (report_.correction.lists_filters) {
      Add("train_infer_final_mask_mean",
          RollReal(sums_.kept_tokens) /
              (RollReal(sums_.tokens) + kRollEpsilon));
    }
  }

  // Sums over kept tokens by loss_agg_mode; means of rows have no sums.
  void AddAggregated(std::string_view name, double sum) {
    const RollAggregation aggregation = report_.loss.aggregation;
    if (aggregation == RollAggregation::kSeqMeanTokenMean) return;
    Add(name, sum / of_.OfLoss(aggregation));
  }

  void AddLosses() {
    const kernels::LossSums& loss = sums_.loss;
    Add("total_loss@sum", loss.total);
    if (report_.loss.coefficient > 0.0) {
      const double policy = loss.policy / report_.loss.coefficient;
      Add("pg_loss@sum", policy);
      Add("weighted_pg_loss@sum", policy);
    }
    if (report_.loss.spec.kl.estimator != kernels::KlEstimator::kNone) {
      Add("kl_loss@sum", loss.kl_penalty);
    }
    AddAggregated("policykl@sum", loss.log_ratio_kept);
  }

  void AddRatios() {
    const LossSpec& spec = report_.loss.spec;
    const Extrema& r = sums_.loss.ratio_range;
    if (report_.loss.variant == RollVariant::kVanilla) return;
    if (keeps_all_) {
      constexpr double kMasked = 1e10;
      const bool has_masked = of_.masked > 0.0;
      const double low = has_masked ? std::min(r.min, kMasked) : r.min;
      Add("ratio_min@min", low);
      Add("ratio_max@max", has_masked ? std::max(r.max, 0.0) : r.max);
    }
    if (spec.surrogate != kernels::Surrogate::kPpoClip) return;
    // Counts are by the sign of advantages; without ratios beyond there are
    // none.
    const bool none_high = r.max <= 1.0 + spec.clip_high;
    const bool none_low = r.min >= 1.0 - spec.clip_low;
    if (none_high) Add("ppo_ratio_high_clipfrac@sum", 0.0);
    if (none_low) Add("ppo_ratio_low_clipfrac@sum", 0.0);
    if (none_high && none_low) Add("ppo_ratio_clipfrac@sum", 0.0);
  }

  void AddSamples() {
    const double kept = RollReal(sums_.kept_sequences);
    const double all = RollReal(sums_.num_sequences);
    const bool is_worker = report_.loss.variant == RollVariant::kWorker;
    Add("valid_samples@sum", kept);
    Add("total_samples@sum", all);
    Add(is_worker ? "valid_sample_ratio@sum" : "valid_sample_ratio",
        kept / (is_worker ? of_.rows : std::max(all, 1.0)));
    for (const std::string_view statistic : {"mean", "min", "max"}) {
      const std::string name = Concat("sample_weights_", statistic);
      Add(is_worker ? Concat(name, "@", statistic) : name,
          all / (all + kRollEpsilon));
    }
  }

  void AddVariant() {
    const LossSpec& spec = report_.loss.spec;
    const kernels::PeerLossSums& peers = sums_.peers.loss;
    switch (report_.loss.variant) {
      case RollVariant::kVanilla:
      case RollVariant::kPpo:
        return;
      case RollVariant::kWorker:
        AddAggregated("clipfrac@sum",
                      RollReal(spec.counts_dropped ? sums_.loss.clipped
                                                   : peers.clipped_kept));
        if (keeps_all_ &&
            report_.loss.aggregation == RollAggregation::kSeqMeanTokenMean) {
          Add("clipfrac@sum", (peers.row_high + peers.row_low) / of_.rows);
        }
        return;
      case RollVariant::kTis:
        Add("tis_lower_bound", 1.0 - spec.clip_low);
        Add("tis_upper_bound", 1.0 + spec.clip_high);
        return AddClippedShares("tis");
      case RollVariant::kCispo:
        Add("cispo_cispo_epsilon_low", spec.clip_low);
        Add("cispo_cispo_epsilon_high", spec.clip_high);
        Add("cispo_cispo_clip_lower", 1.0 - spec.clip_low);
        Add("cispo_cispo_clip_upper", 1.0 + spec.clip_high);
        Add("cispo_cispo_use_unified_mask", 0.0);
        return AddClippedShares("cispo_cispo");
      case RollVariant::kKimi15:
        Add("kimi15_kimi15_tau", spec.beta);
        Add("kimi15_kimi15_log_ratio_mean",
            sums_.loss.log_ratio / of_.positions());
        return;
    }
  }

  // Shares of all positions; masked ones have the ratio 1. The sides are
  // known where one is empty.
  void AddClippedShares(std::string_view prefix) {
    const LossSpec& spec = report_.loss.spec;
    const Extrema& r = sums_.loss.ratio_range;
    const double positions = of_.positions();
    const double masked = spec.clip_high < 0.0 ? of_.masked : 0.0;
    const double inside = RollReal(sums_.loss.clipped);
    const auto add = [&](std::string_view side, double count) {
      Add(Concat(prefix, "_", side, "_clipfrac"), count / positions);
    };
    add("total", inside + masked);
    if (r.min >= 1.0 - spec.clip_low) {
      add("lower", 0.0);
      add("upper", inside + masked);
    } else if (r.max <= 1.0 + spec.clip_high) {
      add("lower", inside);
      add("upper", masked);
    }
  }

  const RollReport& report_;
  const BatchSums& sums_;
  MetricMap& metrics_;
  const RollDivisors of_;
  const bool keeps_all_;
};

}  // namespace

RollDivisors::RollDivisors(const RollReport& report, const BatchSums& sums)
    : tokens(std::max(RollReal(sums.tokens), 1.0)),
      rows(RollReal(sums.nonempty_sequences) + kRollEpsilon),
      width(RollReal(report.padded_length)),
      masked(RollReal(sums.num_sequences) * width - RollReal(sums.tokens)) {}

double RollDivisors::OfLoss(RollAggregation aggregation) const {
  switch (aggregation) {
    case RollAggregation::kSeqMeanTokenMean:
    case RollAggregation::kSeqMeanTokenSum:
      return rows;
    case RollAggregation::kSeqMeanTokenSumNorm:
      return width;
    case RollAggregation::kTokenMean:
      return tokens;
  }
  return tokens;
}

void AddRollMetrics(const RollReport& report, const BatchSums& sums,
                    MetricMap* metrics) {
  RollReporter(report, sums, metrics).Run();
}

}  // namespace counterweight::server
