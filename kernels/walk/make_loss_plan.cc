#include "kernels/math/exp.h"
#include "kernels/surrogates/list.h"
#include "kernels/walk/make_plan.h"

namespace counterweight::kernels {
namespace {

IntervalTerms MakeInterval(double lower, double upper) {
  IntervalTerms terms{};
  terms.lower = static_cast<float>(lower);
  terms.upper = static_cast<float>(upper);
  const ExpTerms low = exp_terms(terms.lower);
  const ExpTerms high = exp_terms(terms.upper);
  terms.exp_lower = low.exp;
  terms.exp_upper = high.exp;
  terms.expm1_lower = low.expm1;
  terms.expm1_upper = high.expm1;
  terms.k3_lower = low.k3;
  terms.k3_upper = high.k3;
  return terms;
}

bool ReadsRow(const LossReduction& reduction) {
  return reduction.row == RowCount::kTokens ||
         reduction.row == RowCount::kKeptTokens ||
         reduction.row == RowCount::kPerToken;
}

bool ReadsKept(const LossReduction& reduction) {
  return reduction.count == BatchCount::kKeptTokens ||
         reduction.count == BatchCount::kKeptRows;
}

// The weight of a log ratio of 0.
double WeightOfOne(const WeightSpec& weight) {
  if (weight.level == Level::kNone) return 1.0;
  const double above = weight.bound == Bound::kMask ? 0.0 : weight.upper;
  const double below = weight.bound == Bound::kMask ? 0.0 : weight.lower;
  if (1.0 > weight.upper) return above;
  return 1.0 < weight.lower ? below : 1.0;
}

}  // namespace

LossPlan MakeLossPlan(const CorrectionSpec& spec) {
  LossPlan plan{};
  const LossSpec& loss = spec.loss;
  plan.spec = loss;
  plan.active = loss.surrogate != Surrogate::kNone;
  if (!plan.active) return plan;
  const SurrogateInfo info = InfoOf(loss.surrogate);
  const bool per_row = info.Has(kTraitRow);
  plan.has_kl = loss.kl.estimator != KlEstimator::kNone;
  plan.has_kl_ratio = plan.has_kl && (loss.kl.gradient_ratio_cap > 0.0 ||
                                      loss.kl.has_own_ratio);
  plan.has_kl_source =
      plan.has_kl && loss.kl.source != RatioSource::kRefCurrent;
  plan.kl_ratio_source =
      loss.kl.has_own_ratio ? loss.kl.ratio_source : RatioSource::kCurrentOld;
  plan.kl_ratio_cap = static_cast<float>(loss.kl.gradient_ratio_cap);
  plan.reads_padding = loss.measures_padding || loss.counts_padding;
  plan.has_ratio = info.Has(kTraitRatio);
  plan.weighs_tokens =
      loss.applies_weight && spec.weight.level != Level::kNone && !per_row;
  plan.counts_dropped = loss.counts_dropped && spec.num_rules > 0;
  plan.selects = info.Has(kTraitSelection);
  plan.row_by_sign = info.Has(kTraitRowBySign);
  plan.ratio_of_row = !plan.has_ratio || loss.level != LossLevel::kToken ||
                      info.Has(kTraitRowRatio);
  plan.reads_excess = info.Has(kTraitExcess);
  plan.sums_advantages =
      plan.selects || info.Has(kTraitRowAdvantage) || loss.averages_advantages;
  plan.needs_row_gradient =
      loss.level == LossLevel::kSequence &&
      (info.Has(kTraitRatioSlope) ||
       (plan.has_kl && loss.kl.importance_weighted && !loss.kl.has_own_ratio));
  plan.by_row = per_row || loss.level != LossLevel::kToken ||
                loss.counts_padding || ReadsRow(loss.reduction) ||
                (plan.has_kl && ReadsRow(loss.kl.reduction));
  const bool drops = spec.non_finite == NonFinitePolicy::kDrop;
  plan.by_batch = plan.selects || drops || ReadsKept(loss.reduction) ||
                  (plan.has_kl && ReadsKept(loss.kl.reduction)) ||
                  (spec.weight.normalize && spec.weight.given_mean == 0.0);
  plan.clamp = MakeInterval(loss.log_ratio_lower, loss.log_ratio_upper);
  // The tile holds ref - current, minus what the penalty clamps.
  plan.kl_clamp = MakeInterval(-loss.kl.token_clamp, loss.kl.token_clamp);
  plan.ratio_low = static_cast<float>(1.0 - loss.clip_low);
  plan.ratio_high = static_cast<float>(1.0 + loss.clip_high);
  plan.ratio_cap = static_cast<float>(loss.ratio_cap);
  plan.dual_clip = static_cast<float>(loss.dual_clip);
  const double padding_weight = WeightOfOne(spec.weight);
  plan.padding_weight = static_cast<float>(padding_weight);
  plan.padding_log_weight = Vespo::log_weight(padding_weight);
  return plan;
}

}  // namespace counterweight::kernels
