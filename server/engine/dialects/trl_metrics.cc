#include "server/engine/dialects/trl_metrics.h"

#include <algorithm>
#include <cmath>

namespace counterweight::server {
namespace {

using kernels::BatchSums;
using kernels::Bound;
using kernels::Extrema;
using kernels::LossSums;
using kernels::WeightSpec;

// The mean of `count` values with this sum, 0 where there are none.
double MeanOrZero(double sum, int64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : 0.0;
}

// Returns the weight of a row without tokens: the bounded ratio 1.
double WeightOfEmptyRow(const WeightSpec& weight) {
  switch (weight.bound) {
    case Bound::kNone:
      return 1.0;
    case Bound::kTruncate:
      return std::min(std::max(1.0, weight.lower), weight.upper);
    case Bound::kMask:
      return weight.lower <= 1.0 && 1.0 <= weight.upper ? 1.0 : 0.0;
  }
  return 1.0;
}

// Values with a known sum, count and extrema.
struct Values {
  double sum;
  int64_t count;
  Extrema range;
};

// Token modes log the tokens' weights, sequence modes the rows', empty ones
// included.
Values WeightValues(const WeightSpec& weight, const BatchSums& sums) {
  if (!kernels::IsSequenceLevel(weight.level)) {
    return {sums.weight.weight, sums.tokens, sums.weight.range};
  }
  const int64_t empty = sums.num_sequences - sums.nonempty_sequences;
  const auto rows = static_cast<double>(sums.nonempty_sequences);
  Values values = {sums.weight.sequence_excess + rows, sums.num_sequences,
                   sums.weight.sequence_range};
  if (empty == 0) return values;
  const double weight_of_empty = WeightOfEmptyRow(weight);
  values.sum += weight_of_empty * static_cast<double>(empty);
  values.range.min = std::min(values.range.min, weight_of_empty);
  values.range.max = std::max(values.range.max, weight_of_empty);
  return values;
}

// TRL's averages of a predicate: mean over the batch, and the rows' extrema.
struct Shares {
  double mean;
  Extrema range;  // NaN where no row has tokens
};

// One number per token. `count`: of the tokens, `rows`: shares within rows.
Shares OverTokens(int64_t count, const Extrema& rows, const BatchSums& sums) {
  Shares shares = {MeanOrZero(static_cast<double>(count), sums.tokens), rows};
  if (sums.nonempty_sequences == 0) shares.range = {kNan, kNan};
  return shares;
}

// One number per row, empty rows counting as false. `sum` and `rows`: over the
// non-empty ones.
Shares OverRows(double sum, Extrema rows, const BatchSums& sums) {
  if (sums.nonempty_sequences < sums.num_sequences) {
    rows.min = std::min(rows.min, 0.0);
    rows.max = std::max(rows.max, 0.0);
  }
  return {MeanOrZero(sum, sums.num_sequences), rows};
}

// One position per row, masked ones included.
Shares OverPositions(int64_t count, const BatchSums& sums) {
  const double all = count == sums.num_sequences ? 1.0 : 0.0;
  const double any = count > 0 ? 1.0 : 0.0;
  return {MeanOrZero(static_cast<double>(count), sums.num_sequences),
          {all, any}};
}

// TRL treats tensors of width 1 as sequence level, even if the batch has that
// width. Advantages that differ along a row make them (B, T) again.
struct ClipShares {
  Shares high, low;
};

ClipShares MakeClipShares(const TrlLoss& loss, int64_t padded_length,
                          const BatchSums& sums) {
  const LossSums& from = sums.loss;
  const kernels::PeerLossSums& peers = sums.peers.loss;
  if (padded_length == 1) {
    return {OverPositions(from.high + peers.padding_high, sums),
            OverPositions(from.low + peers.padding_low, sums)};
  }
  if (loss.sequence_level && peers.mixed_rows == 0) {
    return {OverRows(peers.row_high, peers.row_high_range, sums),
            OverRows(peers.row_low, peers.row_low_range, sums)};
  }
  return {OverTokens(from.high, peers.row_high_range, sums),
          OverTokens(from.low, peers.row_low_range, sums)};
}

}  // namespace

void AddTrlSamplingMetrics(const WeightSpec& weight, const BatchSums& sums,
                           MetricMap* metrics) {
  const Extrema& drift = sums.drift.log_ratio_range;
  // Tokens without a sampler's log-prob have no difference.
  const int64_t known = sums.tokens - sums.non_finite_tokens;
  const bool any_token = known > 0;
  (*metrics)["sampling/sampling_logp_difference/mean"] =
      MeanOrZero(sums.drift.abs_log_ratio, known);
  (*metrics)["sampling/sampling_logp_difference/max"] =
      any_token ? std::max(std::abs(drift.min), std::abs(drift.max)) : 0.0;
  const Values ratio = WeightValues(weight, sums);
  const bool any_ratio = ratio.count > 0;
  (*metrics)["sampling/importance_sampling_ratio/min"] =
      any_ratio ? ratio.range.min : 0.0;
  (*metrics)["sampling/importance_sampling_ratio/mean"] =
      MeanOrZero(ratio.sum, ratio.count);
  (*metrics)["sampling/importance_sampling_ratio/max"] =
      any_ratio ? ratio.range.max : 0.0;
}

void AddTrlLossMetrics(const TrlLoss& loss, int64_t padded_length,
                       const BatchSums& sums, MetricMap* metrics) {
  if (loss.beta != 0.0) {
    (*metrics)["kl"] =
        padded_length == 1
            ? MeanOrZero(sums.loss.kl + sums.peers.loss.padding_kl,
                         sums.num_sequences)
            : MeanOrZero(sums.loss.kl, sums.loss.kl_tokens);
  }
  if (loss.type == TrlLossType::kVespo) {
    (*metrics)["vespo/phi_seq_mean"] =
        MeanOrZero(sums.peers.loss.phi, sums.num_sequences);
    return;
  }
  const ClipShares clip = MakeClipShares(loss, padded_length, sums);
  if (loss.type == TrlLossType::kCispo) {
    (*metrics)["cispo_clip_ratio"] = clip.high.mean;
    return;
  }
  if (!loss.clips_ratio()) return;
  (*metrics)["clip_ratio/low_mean"] = clip.low.mean;
  (*metrics)["clip_ratio/low_min"] = clip.low.range.min;
  (*metrics)["clip_ratio/high_mean"] = clip.high.mean;
  (*metrics)["clip_ratio/high_max"] = clip.high.range.max;
  // A token is either, by the sign of its advantage.
  (*metrics)["clip_ratio/region_mean"] = clip.low.mean + clip.high.mean;
}

}  // namespace counterweight::server
