#include "kernels/validate_loss.h"

#include <cmath>
#include <string>

#include "kernels/float_bounds.h"
#include "kernels/surrogates/list.h"

namespace counterweight::kernels {
namespace {

// 1 + clip_high is a cap of the ratio, not the end of an interval around 1.
constexpr NumberRange kCapRange = {-1.0, kInfinite};

bool IsOfCurrent(RatioSource source) {
  return source == RatioSource::kCurrentRollout ||
         source == RatioSource::kCurrentOld ||
         source == RatioSource::kCurrentSelf;
}

class LossChecker {
 public:
  LossChecker(const CorrectionSpec& spec,
              std::vector<SpecViolation>* violations)
      : spec_(spec), loss_(spec.loss), violations_(violations) {}

  void Check() {
    CheckNumbers();
    CheckShape();
    CheckReduction(loss_.reduction, SpecField::kLossReductionScale);
    CheckWeight();
    CheckKl();
    CheckPadding();
    Require(!loss_.counts_dropped || (!Has(kTraitRow) && !loss_.counts_padding),
            SpecField::kLossSurrogate,
            "is of rows or of padding, which rules empty");
  }

 private:
  void Require(bool ok, SpecField field, const std::string& reason) {
    if (!ok) violations_->push_back({field, -1, reason});
  }

  bool Has(SurrogateTrait trait) const { return info_.Has(trait); }

  void CheckNumbers() {
    for (const LossParameterInfo& info : kLossParameters) {
      // Absent numbers are legal; so is what the surrogate does not read.
      const bool is_bound = std::isinf(LossSpec().*info.member);
      if (!is_bound && !info_.Reads(info.parameter)) continue;
      Require(IsLegal(info), FieldOf(info.parameter), info.reason);
      Require(!Vanishes(info), FieldOf(info.parameter),
              std::string(info.reason) + "; as float32 it is 0");
    }
  }

  // A number above 0 that the kernels would read as 0. A fraction of a count
  // stays a double, and SkyRL's least one is a denormal.
  bool Vanishes(const LossParameterInfo& info) const {
    const double value = loss_.*info.member;
    return info.range.open_low && info.range.low == 0.0 &&
           std::isinf(info.range.high) && value > 0.0 && !IsAboveZero(value);
  }

  bool IsLegal(const LossParameterInfo& info) const {
    const double value = loss_.*info.member;
    if (info.parameter == LossParameter::kLogRatioClamp) {
      return loss_.log_ratio_lower < loss_.log_ratio_upper;
    }
    const bool is_cap =
        info.parameter == LossParameter::kClipHigh && Has(kTraitLowCap);
    const bool is_above = info.parameter == LossParameter::kCovarianceLower &&
                          value > loss_.covariance_upper;
    return (is_cap ? kCapRange : info.range).Contains(value) && !is_above;
  }

  void CheckShape() {
    Require(!Has(kTraitLogRatio) || (std::isinf(loss_.log_ratio_lower) &&
                                     std::isinf(loss_.log_ratio_upper)),
            FieldOf(LossParameter::kLogRatioClamp),
            "is not for a surrogate that reads the log ratio itself");
    Require(!Has(kTraitOverOriginal) || loss_.over == TokenSet::kOriginal,
            SpecField::kLossSurrogate, "VESPO sums over the original tokens");
    Require(!Has(kTraitOverKept) || loss_.over == TokenSet::kKept,
            SpecField::kLossSurrogate,
            "GEO_MEAN is a mean over the kept tokens");
    const LossReduction& reduction = loss_.reduction;
    const bool counts_kept = reduction.count == BatchCount::kKeptTokens ||
                             reduction.count == BatchCount::kKeptRows ||
                             reduction.row == RowCount::kKeptTokens;
    Require(!loss_.prescales_advantages || !counts_kept,
            SpecField::kLossPrescalesAdvantages,
            "rules read the advantages, so what they keep cannot scale them");
    Require(
        !loss_.averages_advantages ||
            (loss_.level != LossLevel::kToken && !loss_.prescales_advantages &&
             !loss_.counts_padding && !loss_.measures_padding),
        SpecField::kLossAveragesAdvantages,
        "is for a ratio of the whole sequence, as GSPO's");
    Require(loss_.level == LossLevel::kToken || Has(kTraitLevels),
            SpecField::kLossSurrogate, "has no ratio of a whole sequence");
    Require(IsOfCurrent(loss_.source), SpecField::kLossSource,
            "must be CURRENT_OLD or CURRENT_ROLLOUT: the gradient is that of "
            "current_log_probs");
    Require(IsOfCurrent(loss_.metrics_source), SpecField::kLossMetricsSource,
            "must be a ratio of current");
    Require(!Has(kTraitDivergence) || loss_.log_prob_form ||
                !std::isfinite(loss_.ratio_cap),
            FieldOf(LossParameter::kRatioCap),
            "DPPO on the ratio itself takes no cap");
  }

  void CheckReduction(const LossReduction& reduction, SpecField field) {
    Require(reduction.scale >= 0.0 && std::isfinite(reduction.scale), field,
            "must make a finite scale >= 0");
  }

  // The weight's and the surrogate's ratios multiply: drift that both correct
  // is corrected twice.
  void CheckWeight() {
    const WeightSpec& weight = spec_.weight;
    if (weight.level == Level::kNone || !loss_.applies_weight) return;
    with_surrogate<AnySurrogate>(loss_.surrogate, [&](auto surrogate) {
      if constexpr (requires { surrogate.RefuseWeight(spec_); }) {
        const char* const reason = surrogate.RefuseWeight(spec_);
        Require(reason == nullptr, SpecField::kLossSurrogate,
                reason == nullptr ? "" : reason);
      }
    });
    if (loss_.allow_double_correction) return;
    const bool has_ratio = Has(kTraitRatio) && !Has(kTraitNoCorrection);
    const bool apart = weight.source == RatioSource::kOldRollout &&
                       loss_.source != RatioSource::kCurrentRollout;
    Require(!has_ratio || apart, SpecField::kLossAllowDoubleCorrection,
            std::string("the surrogate's own ratio (") + Name(loss_.source) +
                ") and the importance weight (" + Name(weight.source) +
                ") correct the same drift twice; set "
                "allow_double_correction if that is meant");
  }

  void CheckKl() {
    const KlSpec& kl = loss_.kl;
    if (kl.estimator == KlEstimator::kNone) return;
    Require(kl.coefficient >= 0.0 && std::isfinite(kl.coefficient),
            SpecField::kKlCoefficient, "must be a finite number >= 0");
    const bool is_of_ref = kl.source == RatioSource::kRefCurrent;
    Require(
        is_of_ref ||
            (IsOfCurrent(kl.source) && kl.source != RatioSource::kCurrentSelf),
        SpecField::kKlEstimator, "must be of current and ref, rollout or old");
    Require(is_of_ref || kl.estimator != KlEstimator::kK3,
            SpecField::kKlEstimator, "K3 is of current and ref");
    Require(IsAboveZero(kl.token_clamp), SpecField::kKlTokenClamp,
            "must be > 0 nats as float32, or absent for no clamp");
    Require(IsAboveZero(kl.value_clamp), SpecField::kKlValueClamp,
            "must be > 0 nats as float32, or absent for no clamp");
    Require(kl.reduction.row != RowCount::kGroupTokens, SpecField::kKlReduction,
            "has no groups");
    Require(
        kl.reduction.row != RowCount::kGiven || kl.reduction == loss_.reduction,
        SpecField::kKlReduction,
        "has the loss's divisors only where it has the loss's reduction");
    Require(!kl.importance_weighted || kl.has_own_ratio ||
                (Has(kTraitRatio) && !Has(kTraitRowRatio)),
            SpecField::kKlImportanceWeighted,
            "needs a surrogate with a ratio of tokens");
    Require(!kl.has_weight || !Has(kTraitRow), SpecField::kKlImportanceWeighted,
            "goes with a weight of tokens, not of a row's loss");
    Require(kl.importance_weighted || !(kl.has_own_ratio || kl.clamps_product),
            SpecField::kKlImportanceWeighted,
            "is needed where its ratio or product is described");
    Require(!kl.ratio_always_moves || kl.has_own_ratio,
            SpecField::kKlImportanceWeighted,
            "must be by a ratio of the penalty's own where that always moves");
    Require(!kl.has_own_ratio || IsOfCurrent(kl.ratio_source),
            SpecField::kKlImportanceWeighted, "must be of a ratio of current");
    Require(!kl.importance_weighted || !kl.straight_through,
            SpecField::kKlImportanceWeighted,
            "and straight_through exclude each other");
    Require(kl.gradient_ratio_cap >= 0.0 &&
                std::isfinite(kl.gradient_ratio_cap) &&
                (kl.gradient_ratio_cap == 0.0 || kl.straight_through),
            SpecField::kKlGradientRatioCap,
            "must be a finite number > 0 beside straight_through, or 0");
    CheckReduction(kl.reduction, SpecField::kKlReductionScale);
  }

  void CheckPadding() {
    Require(!loss_.counts_padding || !spec_.weight.normalize,
            SpecField::kLossCountsPadding,
            "goes with no normalization of weights");
    Require(!loss_.counts_padding || Has(kTraitCountsPadding),
            SpecField::kLossCountsPadding, "is for PPO_CLIP only");
    const bool plain_k3 =
        loss_.kl.estimator == KlEstimator::kNone ||
        (loss_.kl.estimator == KlEstimator::kK3 &&
         std::isinf(loss_.kl.token_clamp) && std::isinf(loss_.kl.value_clamp) &&
         !loss_.kl.has_own_ratio && !loss_.kl.has_weight);
    Require(plain_k3 || !(loss_.counts_padding || loss_.measures_padding),
            SpecField::kKlEstimator,
            "padding is measured by K3 without clamps, weights or a ratio of "
            "its own");
  }

  const CorrectionSpec& spec_;
  const LossSpec& loss_;
  const SurrogateInfo info_ = InfoOf(loss_.surrogate);
  std::vector<SpecViolation>* const violations_;
};

}  // namespace

void ValidateLoss(const CorrectionSpec& spec,
                  std::vector<SpecViolation>* violations) {
  if (spec.loss.surrogate == Surrogate::kNone) return;
  LossChecker(spec, violations).Check();
}

}  // namespace counterweight::kernels
