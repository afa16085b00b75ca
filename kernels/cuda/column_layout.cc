#include "kernels/cuda/column_layout.h"

#include <initializer_list>

namespace counterweight::kernels {
namespace {

class LayoutBuilder {
 public:
  void Columns(std::initializer_list<int> columns) {
    for (const int column : columns) Column(column);
  }
  void Columns(int begin, int end) {
    for (int column = begin; column < end; ++column) Column(column);
  }
  void LossColumns(std::initializer_list<int> columns) {
    for (const int column : columns) Column(kColumnLoss + column);
  }
  void Extremum(int extremum) {
    const int32_t n = layout_.num_extrema++;
    layout_.extrema[n] = static_cast<uint16_t>(extremum);
    layout_.extremum[extremum] = static_cast<uint16_t>((n + 1) * kColumnStride);
  }

  ColumnLayout Build() {
    const auto columns = [](int32_t touched, size_t size) {
      return (touched + 1) * kColumnStride * static_cast<int32_t>(size);
    };
    const int32_t bytes = columns(layout_.num_sums, sizeof(double)) +
                          columns(layout_.num_counts, sizeof(float)) +
                          2 * columns(layout_.num_extrema, sizeof(float));
    constexpr int32_t kAlignment = sizeof(double);
    layout_.bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return layout_;
  }

 private:
  void Column(int column) {
    const bool count = IsCount(column);
    const int32_t n = count ? layout_.num_counts++ : layout_.num_sums++;
    (count ? layout_.count_columns : layout_.sum_columns)[n] =
        static_cast<uint16_t>(column);
    layout_.offset[column] = static_cast<uint16_t>((n + 1) * kColumnStride);
  }

  ColumnLayout layout_{};
};

bool IsByToken(const WeightPlan& weight) {
  const Level level = weight.spec.level;
  return level == Level::kToken || level == Level::kPrefix;
}

void AddWeightByToken(const WeightPlan& weight, LayoutBuilder& layout) {
  if (!IsByToken(weight)) return;
  layout.Columns({kColumnWeight, kColumnWeightSquared, kColumnWeightExcess,
                  kColumnWeightExcessSquared, kColumnRawExcess,
                  kColumnWeightHigh, kColumnWeightLow});
  layout.Extremum(kExtremumWeight);
  layout.Extremum(kExtremumRawLog);
}

void AddWeightAggregate(const WeightPlan& weight, LayoutBuilder& layout) {
  if (IsSequenceLevel(weight.spec.level) || weight.prefix >= 0) {
    layout.Columns({kColumnWeightAggregate, kColumnWeightSeen});
  } else if (IsByToken(weight) && weight.spec.after_rule > 0) {
    layout.Columns({kColumnWeightSeen, kColumnWeightSeenHigh});
  }
}

void AddRule(const RulePlan& rule, int r, LayoutBuilder& layout) {
  const auto column = [&](RuleColumn c) { return RuleColumnIndex(r, c); };
  layout.Columns({column(kRuleSeen), column(kRuleHigh), column(kRuleLow),
                  column(kRuleFired)});
  if (rule.prefix >= 0) layout.Columns({column(kRuleAggregate)});
  layout.Extremum(kExtremumRules + r);
}

void AddStatistics(const Plan& plan, LayoutBuilder& layout) {
  layout.Columns(kColumnTokens, kColumnAbsDifference);
  AddWeightByToken(plan.weight, layout);
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    const int first = RuleColumnIndex(r, kRuleSum);
    layout.Columns(first, first + kNumRuleSums);
  }
  AddWeightAggregate(plan.weight, layout);
  layout.Columns({kColumnNonFinite, kColumnKept, kColumnZeroWeight});
  layout.Extremum(kExtremumLogRatio);
  if (plan.spec.probability_metrics) {
    layout.Columns(kColumnAbsDifference, kColumnNonFinite);
    layout.Extremum(kExtremumDifference);
  }
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    AddRule(plan.rules[r], r, layout);
  }
  if (plan.loss.active && (plan.loss.by_row || plan.loss.selects)) {
    layout.Columns(kColumnLoss, kColumnLoss + kNumLossStatistics);
  }
}

void AddLoss(const LossPlan& loss, LayoutBuilder& layout) {
  layout.LossColumns({kLossValue, kLossLogRatio, kLossLogRatioKept,
                      kLossGradientSquared, kLossAbsKept, kLossSafeKept,
                      kLossRatio, kLossClippedRatio, kLossSlope,
                      kLossSlopeClipped, kLossSlopeRejected, kLossClipped,
                      kLossClippedKept, kLossHigh, kLossLow, kLossHighKept,
                      kLossLowKept, kLossCappedKept, kLossClippedZeroKept});
  layout.Extremum(kExtremumLoss + kLossExtremumRatio);
  layout.Extremum(kExtremumLoss + kLossExtremumAdvantage);
  if (loss.hands_back) layout.LossColumns({kLossSequenceSlope});
  if (loss.has_kl) {
    layout.LossColumns({kLossKl, kLossRefLogRatio, kLossKlTokens});
    if (loss.hands_back) layout.LossColumns({kLossKlSequenceSlope});
  }
  if (!loss.reads_padding) return;
  layout.LossColumns({kLossPadding, kLossPaddingKl, kLossPaddingAdvantage,
                      kLossPaddingHigh, kLossPaddingLow});
  layout.Extremum(kExtremumLoss + kLossExtremumPaddingRatio);
}

}  // namespace

ColumnLayout MakeColumnLayout(const Plan& plan, bool stats, bool output) {
  LayoutBuilder layout;
  if (stats) AddStatistics(plan, layout);
  if (output && plan.loss.active) AddLoss(plan.loss, layout);
  return layout.Build();
}

}  // namespace counterweight::kernels
