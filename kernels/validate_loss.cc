#include "kernels/validate_loss.h"

#include <cmath>
#include <string>
namespace counterweight::kernels {
namespace {

class LossChecker {
 public:
  LossChecker(const CorrectionSpec& spec,
              std::vector<SpecViolation>* violations)
      : spec_(spec), loss_(spec.loss), violations_(violations) {}

  void Check() {
    CheckNumbers();
    CheckShape();
    CheckReduction(loss_.reduction, "policy_loss.");
    CheckWeight();
    CheckKl();
    CheckPadding();
  }

 private:
  void Require(bool ok, const char* field, const std::string& reason) {
    if (!ok) violations_->push_back({field, reason});
  }

  bool Is(Surrogate surrogate) const { return loss_.surrogate == surrogate; }
  bool Has(SurrogateTrait trait) const { return info_.Has(trait); }

  void CheckNumbers() {
    // CISPO's upper end may lie below 1: TRL's default cap is 0.2.
    const double lowest = Has(kTraitLowCap) ? -1.0 : 0.0;
    Require(loss_.clip_low >= 0.0, "policy_loss.clip_low", "must be >= 0");
    Require(loss_.clip_high >= lowest, "policy_loss.clip_high", "must be >= 0");
    Require(loss_.dual_clip > 1.0, "policy_loss.dual_clip",
            "must be > 1, or absent for none");
    Require(loss_.ratio_cap > 0.0, "policy_loss.ratio_cap",
            "must be > 0, or absent for none");
    Require(loss_.log_ratio_lower < loss_.log_ratio_upper,
            "policy_loss.log_ratio_clamp", "must be > 0, or absent for none");
    if (info_.Reads(kNumbersTau)) {
      Require(IsPositive(loss_.tau_positive), "policy_loss.tau_positive",
              "must be a finite number > 0");
      Require(IsPositive(loss_.tau_negative), "policy_loss.tau_negative",
              "must be a finite number > 0");
    }
    if (info_.Reads(kNumbersBeta)) {
      Require(IsPositive(loss_.beta), "policy_loss.beta",
              "DRO needs a finite beta > 0");
    }
    if (info_.Reads(kNumbersShape)) CheckShapeNumbers();
    if (Has(kTraitSelection)) CheckCovariance();
  }

  static bool IsPositive(double x) { return x > 0.0 && std::isfinite(x); }

  void CheckShapeNumbers() {
    const auto finite = [&](double x, const char* field) {
      Require(std::isfinite(x), field, "must be a finite number");
    };
    finite(loss_.k_positive, "policy_loss.k_positive");
    finite(loss_.lambda_positive, "policy_loss.lambda_positive");
    finite(loss_.k_negative, "policy_loss.k_negative");
    finite(loss_.lambda_negative, "policy_loss.lambda_negative");
  }

  void CheckCovariance() {
    Require(loss_.covariance_fraction > 0.0 && loss_.covariance_fraction <= 1.0,
            "policy_loss.covariance_fraction", "must be in (0, 1]");
    Require(!std::isnan(loss_.covariance_lower) &&
                !std::isnan(loss_.covariance_upper) &&
                loss_.covariance_lower <= loss_.covariance_upper,
            "policy_loss.covariance_lower", "must be <= covariance_upper");
    Require(loss_.covariance_kl_weight >= 0.0 &&
                std::isfinite(loss_.covariance_kl_weight),
            "policy_loss.covariance_kl_weight", "must be a finite number >= 0");
  }

  void CheckShape() {
    Require(!Has(kTraitLogRatio) || (std::isinf(loss_.log_ratio_lower) &&
                                     std::isinf(loss_.log_ratio_upper)),
            "policy_loss.log_ratio_clamp",
            "is not for a surrogate that reads the log ratio itself");
    Require(!Has(kTraitOverOriginal) || loss_.over == TokenSet::kOriginal,
            "policy_loss.surrogate", "VESPO sums over the original tokens");
    Require(!Has(kTraitOverKept) || loss_.over == TokenSet::kKept,
            "policy_loss.surrogate", "GEO_MEAN is a mean over the kept tokens");
    const LossReduction& reduction = loss_.reduction;
    const bool counts_kept = reduction.count == BatchCount::kKeptTokens ||
                             reduction.count == BatchCount::kKeptRows ||
                             reduction.row == RowCount::kKeptTokens;
    Require(!loss_.prescales_advantages || !counts_kept,
            "policy_loss.prescales_advantages",
            "rules read the advantages, so what they keep cannot scale them");
    Require(loss_.level == LossLevel::kToken || Has(kTraitLevels),
            "policy_loss.surrogate", "has no ratio of a whole sequence");
    Require(loss_.source == RatioSource::kCurrentRollout ||
                loss_.source == RatioSource::kCurrentOld ||
                loss_.source == RatioSource::kCurrentSelf,
            "policy_loss.ratio_source",
            "must be CURRENT_OLD or CURRENT_ROLLOUT: the gradient is that of "
            "current_log_probs");
    Require(loss_.metrics_source == RatioSource::kCurrentRollout ||
                loss_.metrics_source == RatioSource::kCurrentOld ||
                loss_.metrics_source == RatioSource::kCurrentSelf,
            "policy_loss.metrics_source", "must be a ratio of current");
    Require(!Has(kTraitDivergence) || loss_.log_prob_form ||
                !std::isfinite(loss_.ratio_cap),
            "policy_loss.ratio_cap", "DPPO on the ratio itself takes no cap");
  }

  void CheckReduction(const LossReduction& reduction, const char* prefix) {
    if (!(reduction.scale >= 0.0) || !std::isfinite(reduction.scale)) {
      violations_->push_back({std::string(prefix) + "norm_length",
                              "must make a finite scale >= 0"});
    }
  }

  // The weight's and the surrogate's ratios multiply; what both correct is
  // corrected twice.
  void CheckWeight() {
    const WeightSpec& weight = spec_.weight;
    if (weight.level == Level::kNone || !loss_.applies_weight) return;
    if (Is(Surrogate::kVespo)) {
      Require(weight.level == Level::kToken, "policy_loss.surrogate",
              "VESPO takes weights of tokens: it sums their logarithms");
    }
    if (Is(Surrogate::kGeoMean) && IsSequenceLevel(weight.level)) {
      bool zeroes = false;
      for (int r = 0; r < spec_.num_rules; ++r) {
        zeroes = zeroes || spec_.rules[r].effect == Effect::kZeroWeight;
      }
      Require(!zeroes, "policy_loss.surrogate",
              "GEO_MEAN with a weight per sequence takes no ZERO_WEIGHT rule");
    }
    if (loss_.allow_double_correction) return;
    const bool has_ratio = Has(kTraitRatio) && !Has(kTraitNoCorrection);
    const bool apart = weight.source == RatioSource::kOldRollout &&
                       loss_.source != RatioSource::kCurrentRollout;
    Require(!has_ratio || apart, "policy_loss.allow_double_correction",
            std::string("the surrogate's own ratio (") + Name(loss_.source) +
                ") and the importance weight (" + Name(weight.source) +
                ") correct the same drift twice; set "
                "allow_double_correction if that is meant");
  }

  void CheckKl() {
    const KlSpec& kl = loss_.kl;
    if (kl.estimator == KlEstimator::kNone) return;
    Require(kl.coefficient >= 0.0 && std::isfinite(kl.coefficient),
            "kl_penalty.coefficient", "must be a finite number >= 0");
    Require(kl.token_clamp > 0.0, "kl_penalty.token_clamp",
            "must be > 0 nats, or absent for no clamp");
    Require(kl.value_clamp > 0.0, "kl_penalty.value_clamp",
            "must be > 0 nats, or absent for no clamp");
    Require(kl.reduction.row != RowCount::kGroupTokens, "kl_penalty.reduction",
            "has no groups");
    Require(!kl.importance_weighted ||
                (Has(kTraitRatio) && !Is(Surrogate::kGeoMean)),
            "kl_penalty.importance_weighted",
            "needs a surrogate with a ratio of tokens");
    Require(!kl.importance_weighted || !kl.straight_through,
            "kl_penalty.importance_weighted",
            "and straight_through exclude each other");
    Require(kl.gradient_ratio_cap >= 0.0 &&
                std::isfinite(kl.gradient_ratio_cap) &&
                (kl.gradient_ratio_cap == 0.0 || kl.straight_through),
            "kl_penalty.gradient_ratio_cap",
            "must be a finite number > 0 beside straight_through, or 0");
    CheckReduction(kl.reduction, "kl_penalty.");
  }

  void CheckPadding() {
    Require(!loss_.counts_padding || !spec_.weight.normalize,
            "policy_loss.counts_padding",
            "goes with no normalization of weights");
    Require(!loss_.counts_padding || Has(kTraitPadding),
            "policy_loss.counts_padding", "is for PPO_CLIP only");
    const bool plain_k3 =
        loss_.kl.estimator == KlEstimator::kNone ||
        (loss_.kl.estimator == KlEstimator::kK3 &&
         std::isinf(loss_.kl.token_clamp) && std::isinf(loss_.kl.value_clamp));
    Require(plain_k3 || !(loss_.counts_padding || loss_.measures_padding),
            "kl_penalty.estimator", "padding is measured by K3 without clamps");
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
