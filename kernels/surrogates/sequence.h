// Surrogates with one number V for a row. Words as in clipped.h.
#ifndef COUNTERWEIGHT_KERNELS_SURROGATES_SEQUENCE_H_
#define COUNTERWEIGHT_KERNELS_SURROGATES_SEQUENCE_H_

#include "kernels/math/exp.h"
#include "kernels/plan/record.h"
#include "kernels/surrogate_info.h"
#include "kernels/surrogates/surrogate.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The inputs of set_row().
struct SurrogateRow {
  const LossRecord& sums;
  double tokens;  // of response_mask
  // Sequence levels of the weight: the row's, before and after normalization.
  float weight;
  double normalizer;
};

// GMPO (Zhao et al. 2025, arXiv:2507.20673) in verl's form: V = -mean(A)
// exp(mean x) exp(mean log(w + 1e-10)), means over n + 1e-8, x the log ratio
// clipped against A. V's slope reaches the tokens with an unclipped log ratio;
// half of it where the log ratio is exactly a bound, as in verl's.
struct GeoMean {
  static constexpr Surrogate kSurrogate = Surrogate::kGeoMean;
  static constexpr SurrogateInfo kInfo = {
      "geo_mean",
      kTraitRatio | kTraitLogRatio | kTraitRow | kTraitRowRatio |
          kTraitRowAdvantage | kTraitOverKept,
      Bits(LossParameter::kClipLow, LossParameter::kClipHigh)};

  // Null, or why the importance weight cannot be combined with it.
  static const char* RefuseWeight(const CorrectionSpec& spec) {
    if (!IsSequenceLevel(spec.weight.level)) return nullptr;
    for (int r = 0; r < spec.num_rules; ++r) {
      if (spec.rules[r].effect == Effect::kZeroWeight) {
        return "GEO_MEAN with a weight per sequence takes no ZERO_WEIGHT rule";
      }
    }
    return nullptr;
  }

  static constexpr double kAggregateClamp = __builtin_inf();

  // A token's addend to the row's aggregate: l clipped at the end that A pulls
  // it to.
  COUNTERWEIGHT_HD static WideVec aggregate(const LossPlan& loss, WideVec l,
                                            WideVec a) {
    const WideVec lowest = splat_wide(-loss.spec.clip_low);
    const WideVec highest = splat_wide(loss.spec.clip_high);
    const WideVec capped = l > highest ? highest : l;
    const WideVec raised = l < lowest ? lowest : l;
    const WideVec raised_or_zero = a < 0.0 ? raised : WideVec{};
    return a > 0.0 ? capped : raised_or_zero;
  }

  COUNTERWEIGHT_HD static double log_weight(double w) {
    return log64(w + 1e-10);
  }

  COUNTERWEIGHT_HD static void set_row(const Plan& plan,
                                       const SurrogateRow& row, LossRow& out) {
    const double n = row.sums.sums[kLossSeen] + 1e-8;
    const ExpTerms64 ratio = exp_terms64(row.sums.sums[kLossAggregate] / n);
    double log_weights = row.sums.sums[kLossLogWeight];
    if (IsSequenceLevel(plan.weight.spec.level)) {
      const double w =
          static_cast<double>(static_cast<float>(row.weight / row.normalizer));
      log_weights = row.sums.sums[kLossSeen] * log_weight(w);
    }
    const double weight =
        plan.loss.spec.applies_weight ? exp64(log_weights / n) : 1.0;
    const double advantage = row.sums.sums[kLossAdvantage] / n;
    out.ratio = static_cast<float>(ratio.exp);
    out.excess = static_cast<float>(ratio.expm1);
    out.slope = out.ratio;
    out.value[0] = static_cast<float>(-advantage * ratio.exp * weight);
  }

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& loss,
                                             const SurrogateInput& x) {
    const Vec zero{};
    const Vec one = splat(1.0f);
    const float lowest = static_cast<float>(-loss.spec.clip_low);
    const float highest = static_cast<float>(loss.spec.clip_high);
    const Vec above = x.l > highest ? one : zero;
    const Vec below = x.l < lowest ? one : zero;
    const Vec outside = above + below;
    SurrogateVec out{};
    out.value = splat(x.row_value[0]);
    const Vec rising = above != 0.0f ? zero : out.value;
    const Vec falling = below != 0.0f ? zero : out.value;
    const Vec falling_or_zero = x.a < 0.0f ? falling : zero;
    const Vec whole = x.a > 0.0f ? rising : falling_or_zero;
    const Vec halved = x.l == highest ? 0.5f * whole : whole;
    out.slope = x.l == lowest ? 0.5f * whole : halved;
    out.full_slope = x.a != 0.0f ? out.value : zero;
    out.high = x.a > 0.0f ? outside : zero;
    out.low = x.a < 0.0f ? outside : zero;
    const Vec below_or_zero = x.a < 0.0f ? below : zero;
    out.clipped = x.a > 0.0f ? above : below_or_zero;
    return out;
  }
};

// VESPO (Shen et al. 2026, arXiv:2602.10693): -A phi lp, phi of the row and of
// the sign of A, detached. In TRL's form (loss_type "vespo").
struct Vespo {
  static constexpr Surrogate kSurrogate = Surrogate::kVespo;
  static constexpr SurrogateInfo kInfo = {
      "vespo",
      kTraitRatio | kTraitLogRatio | kTraitRow | kTraitRowBySign |
          kTraitOverOriginal,
      Bits(LossParameter::kKPositive, LossParameter::kLambdaPositive,
           LossParameter::kKNegative, LossParameter::kLambdaNegative)};

  static const char* RefuseWeight(const CorrectionSpec& spec) {
    return spec.weight.level == Level::kToken
               ? nullptr
               : "VESPO takes weights of tokens: it sums their logarithms";
  }

  // Weights are at least this; logarithms of weights, and of the row's ratio,
  // lie within the other two.
  static constexpr double kFloor = 1e-8;
  static constexpr double kLogFloor = -18.420680743952367;  // log of kFloor
  static constexpr double kLogCeiling = 20.0;

  static constexpr double kAggregateClamp = kLogCeiling;

  COUNTERWEIGHT_HD static WideVec aggregate(const LossPlan& /*loss*/, WideVec l,
                                            WideVec /*a*/) {
    return l;
  }

  COUNTERWEIGHT_HD static double log_weight(double w) {
    const double log = log64(w > kFloor ? w : kFloor);
    return log < kLogCeiling ? log : kLogCeiling;
  }

  // Padding beyond the row's tokens adds the weight of a ratio of 1.
  COUNTERWEIGHT_HD static void set_row(const Plan& plan,
                                       const SurrogateRow& row, LossRow& out) {
    const LossPlan& loss = plan.loss;
    const LossSpec& spec = loss.spec;
    double q = row.sums.sums[kLossAggregate];
    if (spec.applies_weight) q += row.sums.sums[kLossLogWeight];
    if (spec.applies_weight && spec.padded_length > 0) {
      const double padding =
          static_cast<double>(spec.padded_length) - row.tokens;
      q += padding * loss.padding_log_weight;
    }
    const double raised = q < kLogFloor ? kLogFloor : q;
    const double c = raised > kLogCeiling ? kLogCeiling : raised;
    out.value[0] = phi(c, spec.k_positive, spec.lambda_positive);
    out.value[1] = phi(c, spec.k_negative, spec.lambda_negative);
  }

  COUNTERWEIGHT_HD static SurrogateVec value(const LossPlan& /*loss*/,
                                             const SurrogateInput& x) {
    const Vec positive = splat(x.row_value[0]);
    const Vec negative = splat(x.row_value[1]);
    const Vec scaled = -x.a * (x.a < 0.0f ? negative : positive);
    SurrogateVec out{};
    out.value = scaled * x.lp;
    out.slope = scaled;
    out.full_slope = scaled;
    return out;
  }

 private:
  // exp(lambda + k q - lambda e^q), 0 where that is not finite.
  COUNTERWEIGHT_HD static float phi(double q, double k, double lambda) {
    constexpr double kSmallestLambda = 1e-4;
    const double at_least = lambda < kSmallestLambda ? kSmallestLambda : lambda;
    const double phi = exp64(at_least + k * q - at_least * exp64(q));
    const float narrow = static_cast<float>(phi);
    return __builtin_fabsf(narrow) <= __FLT_MAX__ ? narrow : 0.0f;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SURROGATES_SEQUENCE_H_
