// Row-level decisions for the loss of a row's tokens, and the row's
// contribution to the batch. Formulas: README.md, "Policy losses". `Row` has
// the members of RowRecord.
#ifndef COUNTERWEIGHT_KERNELS_WALK_LOSS_ROW_H_
#define COUNTERWEIGHT_KERNELS_WALK_LOSS_ROW_H_

#include <type_traits>

#include "kernels/math/exp.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"
#include "kernels/surrogates/list.h"

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
    case RowCount::kGiven:        // likewise
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

// Makes the state of row `index` before its sums are known. REQUIRES:
// loss.active.
COUNTERWEIGHT_HD void initial_loss(const LossPlan& loss,
                                   const LossContext& context, int64_t index,
                                   LossRow& out) {
  out = LossRow{};
  out.advantage = 1.0;
  out.ratio = 1.0f;
  out.slope = 1.0f;
  out.factor = context.row_factors != nullptr ? context.row_factors[index]
                                              : context.factor;
  // Validate: a penalty with given divisors has the loss's own reduction.
  out.kl_factor = loss.spec.kl.reduction.row == RowCount::kGiven
                      ? out.factor
                      : context.kl_factor;
  if (loss.spec.prescales_advantages) {
    out.advantage = out.factor;
    out.factor = 1.0;
  }
}

// Decides the row after the statistics pass. `row` and `counts` may be all zero
// where nothing of them is read (not loss.by_row). REQUIRES: plan.loss.active.
COUNTERWEIGHT_HD void decide_loss(const Plan& plan, const LossContext& context,
                                  int64_t index, const RowCounts& counts,
                                  float weight, const LossRecord& row,
                                  LossRow& out) {
  const LossPlan& loss = plan.loss;
  initial_loss(loss, context, index, out);
  if (context.row_factors == nullptr) {
    out.factor = row_factor(loss.spec.reduction, context.factor, counts);
  }
  if (loss.has_kl && loss.spec.kl.reduction.row != RowCount::kGiven) {
    out.kl_factor =
        row_factor(loss.spec.kl.reduction, context.kl_factor, counts);
  }
  if (loss.spec.level != LossLevel::kToken) set_sequence_ratio(loss, row, out);
  if (loss.spec.averages_advantages) {
    out.advantage =
        row.sums[kLossAdvantage] / at_least_one(row.sums[kLossSeen]);
  }
  // If rules dropped all tokens of a row, its padding is dropped too.
  out.padding_counts = counts.kept > 0.0 || !(counts.tokens > 0.0);
  const SurrogateRow of_row{row, counts.tokens, weight, context.normalizer};
  with_surrogate<SurrogateWith<AnySurrogate, kTraitRow>>(
      loss.spec.surrogate,
      [&](auto surrogate) { surrogate.set_row(plan, of_row, out); });
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

// The statistics pass's columns of a settled row.
template <class Row>
COUNTERWEIGHT_HD void take_statistics(const Row& from, LossRecord& row) {
  for (int c = 0; c < kNumLossStatistics; ++c) row.sums[c] = from.loss_sums[c];
}

// The loss pass's columns of a row; `from` may be `row` itself.
COUNTERWEIGHT_HD void take_loss(const LossRecord& from, LossRecord& row) {
  for (int c = kNumLossStatistics; c < kNumLossColumns; ++c) {
    row.sums[c] = from.sums[c];
  }
  for (int e = 0; e < kNumLossExtrema; ++e) {
    row.low[e] = from.low[e];
    row.high[e] = from.high[e];
  }
}

// The loss's sums over rows.
template <class Row>
COUNTERWEIGHT_HD void clear_row_loss(Row& record) {
  using V = std::remove_reference_t<decltype(record.row_loss_sums[0])>;
  const V infinity = spread_wide<V>(__builtin_inf());
  for (int c = 0; c < kNumRowLossColumns; ++c) record.row_loss_sums[c] = V{};
  for (int e = 0; e < kNumRowLossExtrema; ++e) {
    record.row_loss_low[e] = infinity;
    record.row_loss_high[e] = -infinity;
  }
}

// Adds rows to the batch once the loss pass is over: a OneLossRow, or those of
// a register. `tokens` = their counts in response_mask. Leaves sums over tokens
// in `rows`.
template <class Rows, class Sums>
COUNTERWEIGHT_HD void add_loss(const LossPlan& loss,
                               typename Rows::Number tokens, const Rows& rows,
                               Sums& out) {
  using V = typename Rows::Number;
  clear_row_loss(out);
  const V factor = rows.factor();
  const V scale = factor < 0.0 ? -factor : factor;
  for (const int c : {kLossSlope, kLossSlopeClipped, kLossSlopeRejected}) {
    rows.set_loss_sum(c, rows.loss_sum(c) * scale);
  }
  V* const sums = out.row_loss_sums;
  sums[kRowLossPolicy] =
      factor * (rows.loss_sum(kLossValue) + rows.loss_sum(kLossPadding));
  const V padding_kl =
      loss.spec.counts_padding ? rows.loss_sum(kLossPaddingKl) : V{};
  sums[kRowLossKlPenalty] =
      rows.kl_factor() * (rows.loss_sum(kLossKl) + padding_kl);
  out.row_loss_low[kRowLossExtremumPaddingRatio] =
      rows.loss_low(kLossExtremumPaddingRatio);
  out.row_loss_high[kRowLossExtremumPaddingRatio] =
      rows.loss_high(kLossExtremumPaddingRatio);

  const auto nonempty = tokens > 0.0;
  const V least = rows.loss_low(kLossExtremumAdvantage);
  const V most = rows.loss_high(kLossExtremumAdvantage);
  if (loss.row_by_sign) {
    const V sign = nonempty ? most : rows.loss_sum(kLossPaddingAdvantage);
    sums[kRowLossPhi] = sign < 0.0 ? rows.value(1) : rows.value(0);
  }
  const V high = rows.loss_sum(kLossHigh) / tokens;
  const V low = rows.loss_sum(kLossLow) / tokens;
  sums[kRowLossHigh] = nonempty ? high : V{};
  sums[kRowLossLow] = nonempty ? low : V{};
  const V mixed = least < most ? spread_wide<V>(1.0) : V{};
  sums[kRowLossMixed] = nonempty ? mixed : V{};
  const auto extend = [&](RowLossExtremum e, V lowest,
                          V highest) COUNTERWEIGHT_INLINE_LAMBDA {
    out.row_loss_low[e] = nonempty ? lowest : out.row_loss_low[e];
    out.row_loss_high[e] = nonempty ? highest : out.row_loss_high[e];
  };
  extend(kRowLossExtremumRatio, rows.loss_low(kLossExtremumRatio),
         rows.loss_high(kLossExtremumRatio));
  extend(kRowLossExtremumHigh, high, high);
  extend(kRowLossExtremumLow, low, low);
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_LOSS_ROW_H_
