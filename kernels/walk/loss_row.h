// Row-level decisions for the loss of a row's tokens, and the row's
// contribution to the batch. Formulas: README.md, "Policy losses". `Row` has
// the members of RowRecord.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_ROW_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_ROW_H_

#include "kernels/math/exp.h"
#include "kernels/surrogates/list.h"
#include "kernels/walk/plan.h"
#include "kernels/walk/record.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Tokens of a row, by which reductions divide.
struct RowCounts {
  double tokens;
  double kept;
};

COUNTERWEIGHT_HD double at_least_one(double count) {
  return count < 1.0 ? 1.0 : count;
}

COUNTERWEIGHT_HD double row_factor(const LossReduction& reduction,
                                   double factor, const RowCounts& counts) {
  switch (reduction.row) {
    case RowCount::kOne:
    case RowCount::kGroupTokens:  // see LossContext::row_factors
      return factor;
    case RowCount::kTokens:
      return factor / at_least_one(counts.tokens);
    case RowCount::kKeptTokens:
      return factor / at_least_one(counts.kept);
    case RowCount::kPerToken:
      return factor * counts.tokens;
  }
  return factor;
}

// exp of the clamped mean; the gradient stops at the clamp.
COUNTERWEIGHT_HD void set_sequence_ratio(const LossPlan& loss,
                                         const LossRecord& row, LossRow& out) {
  const double seen = row.sums[kLossSeen];
  const double mean = seen > 0.0 ? row.sums[kLossAggregate] / seen : 0.0;
  const double raised =
      mean < loss.spec.log_ratio_lower ? loss.spec.log_ratio_lower : mean;
  const double c =
      raised > loss.spec.log_ratio_upper ? loss.spec.log_ratio_upper : raised;
  const ExpTerms64 terms = exp_terms64(c);
  out.ratio = static_cast<float>(terms.exp);
  out.excess = static_cast<float>(terms.expm1);
  out.slope = c == mean ? out.ratio : 0.0f;
}

// Returns the state of row `index` before its sums are known.
COUNTERWEIGHT_HD LossRow initial_loss(const LossPlan& loss,
                                      const LossContext& context,
                                      int64_t index) {
  LossRow out{};
  out.advantage_scale = 1.0;
  out.ratio = 1.0f;
  out.slope = 1.0f;
  if (!loss.active) return out;
  out.factor = context.row_factors != nullptr ? context.row_factors[index]
                                              : context.factor;
  out.kl_factor = context.kl_factor;
  if (loss.spec.prescales_advantages) {
    out.advantage_scale = out.factor;
    out.factor = 1.0;
  }
  return out;
}

// Decides the row after the statistics pass. `row` and `counts` may be all zero
// where nothing of them is read (not loss.by_row).
COUNTERWEIGHT_HD LossRow decide_loss(const Plan& plan,
                                     const LossContext& context, int64_t index,
                                     const RowCounts& counts, float weight,
                                     const LossRecord& row) {
  const LossPlan& loss = plan.loss;
  LossRow out = initial_loss(loss, context, index);
  if (!loss.active) return out;
  if (context.row_factors == nullptr) {
    out.factor = row_factor(loss.spec.reduction, context.factor, counts);
  }
  if (loss.has_kl) {
    out.kl_factor =
        row_factor(loss.spec.kl.reduction, context.kl_factor, counts);
  }
  if (loss.spec.level != LossLevel::kToken) set_sequence_ratio(loss, row, out);
  // If rules dropped all tokens of a row, its padding is dropped too.
  out.padding_counts = counts.kept > 0.0 || !(counts.tokens > 0.0);
  const SurrogateRow of_row{row, counts.tokens, weight, context.normalizer};
  with_surrogate<SurrogateWith<AnySurrogate, kTraitRow>>(
      loss.spec.surrogate,
      [&](auto surrogate) { surrogate.set_row(plan, of_row, out); });
  return out;
}

// Returns, after the loss pass, each token's share (LossSpec::over) of the
// gradient that its row's mean received.
COUNTERWEIGHT_HD double hand_back(const LossPlan& loss, const LossRecord& row,
                                  const LossRow& state) {
  const double kl = loss.spec.kl.coefficient * state.kl_factor;
  const double slope = state.factor * row.sums[kLossSequenceSlope] +
                       kl * row.sums[kLossKlSequenceSlope];
  return slope / at_least_one(row.sums[kLossSeen]);
}

// Folds the loss pass's columns of a row's segments into the first's, pairwise
// by index; at(i) is segment i's record.
template <class At>
COUNTERWEIGHT_HD void fold_loss_segments(int64_t count, At at) {
  for (int64_t stride = 1; stride < count; stride *= 2) {
    for (int64_t i = 0; i + stride < count; i += 2 * stride) {
      fold_loss(at(i), at(i + stride), kNumLossStatistics, kNumLossColumns);
    }
  }
}

// The statistics pass's columns of a settled row.
template <class Row>
COUNTERWEIGHT_HD void take_statistics(const Row& from, LossRecord& row) {
  for (int c = 0; c < kNumLossStatistics; ++c) row.sums[c] = from.loss_sums[c];
}

// The loss's sums over rows.
template <class Row>
COUNTERWEIGHT_HD void clear_row_loss(Row& record) {
  for (int c = 0; c < kNumRowLossColumns; ++c) record.row_loss_sums[c] = 0.0;
  for (int e = 0; e < kNumRowLossExtrema; ++e) {
    record.row_loss_low[e] = __builtin_inf();
    record.row_loss_high[e] = -__builtin_inf();
  }
}

// Adds the row to the batch once the loss pass is over. `tokens` = its count in
// response_mask.
template <class Row>
COUNTERWEIGHT_HD void add_loss(const LossPlan& loss, double tokens,
                               const LossRow& state, const LossRecord& row,
                               Row& out) {
  clear_row_loss(out);
  for (int c = 0; c < kNumLossColumns; ++c) out.loss_sums[c] = row.sums[c];
  const double scale = state.factor < 0.0 ? -state.factor : state.factor;
  out.loss_sums[kLossSlope] *= scale;
  out.loss_sums[kLossSlopeClipped] *= scale;
  out.loss_sums[kLossSlopeRejected] *= scale;
  double* sums = out.row_loss_sums;
  sums[kRowLossPolicy] =
      state.factor * (row.sums[kLossValue] + row.sums[kLossPadding]);
  const double padding_kl =
      loss.spec.counts_padding ? row.sums[kLossPaddingKl] : 0.0;
  sums[kRowLossKlPenalty] = state.kl_factor * (row.sums[kLossKl] + padding_kl);
  out.row_loss_low[kRowLossExtremumPaddingRatio] =
      static_cast<double>(row.low[kLossExtremumPaddingRatio]);
  out.row_loss_high[kRowLossExtremumPaddingRatio] =
      static_cast<double>(row.high[kLossExtremumPaddingRatio]);
  const bool pads_negative = row.sums[kLossPaddingAdvantage] < 0.0;
  if (loss.row_by_sign) {
    sums[kRowLossPhi] = static_cast<double>(state.value[pads_negative ? 1 : 0]);
  }
  if (!(tokens > 0.0)) return;
  const double high = row.sums[kLossHigh] / tokens;
  const double low = row.sums[kLossLow] / tokens;
  const bool mixed =
      row.low[kLossExtremumAdvantage] < row.high[kLossExtremumAdvantage];
  sums[kRowLossHigh] = high;
  sums[kRowLossLow] = low;
  sums[kRowLossMixed] = mixed ? 1.0 : 0.0;
  const bool negative = row.high[kLossExtremumAdvantage] < 0.0f;
  if (loss.row_by_sign) {
    sums[kRowLossPhi] = static_cast<double>(state.value[negative ? 1 : 0]);
  }
  out.row_loss_low[kRowLossExtremumRatio] =
      static_cast<double>(row.low[kLossExtremumRatio]);
  out.row_loss_high[kRowLossExtremumRatio] =
      static_cast<double>(row.high[kLossExtremumRatio]);
  out.row_loss_low[kRowLossExtremumHigh] = high;
  out.row_loss_high[kRowLossExtremumHigh] = high;
  out.row_loss_low[kRowLossExtremumLow] = low;
  out.row_loss_high[kRowLossExtremumLow] = low;
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_ROW_H_
