// Building blocks of the rows of the methods table: specs to which each
// function adds one choice, parameters, sources, and the choices that differ
// between other systems.
#ifndef COUNTERWEIGHT_KERNELS_METHODS_BUILDING_BLOCKS_H_
#define COUNTERWEIGHT_KERNELS_METHODS_BUILDING_BLOCKS_H_

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/methods.h"

namespace counterweight::kernels::methods {

using Values = std::span<const double>;

inline constexpr RatioSource kDecoupled = RatioSource::kOldRollout;
inline constexpr RatioSource kBypass = RatioSource::kCurrentRollout;

// All rows of several families.
std::vector<Method> Join(std::initializer_list<std::vector<Method>> families);

CorrectionSpec Drift(RatioSource source);

// Adds a rule of the spec's drift source.
CorrectionSpec WithRule(CorrectionSpec spec, const RejectionRule& rule);

// Weights of the drift source with exponents clamped at kSafetyClamp, as in
// verl and SkyRL. TIS truncates above, IcePop zeroes outside.
CorrectionSpec TokenTis(RatioSource source, double upper);
CorrectionSpec SequenceTis(RatioSource source, double upper);
CorrectionSpec TokenIcepop(RatioSource source, double lower, double upper);

// Weights of old/rollout with unclamped exponents, as in TRL and OpenRLHF.
CorrectionSpec Unclamped(Level level, Bound bound, double lower, double upper);

// Keeps where the aggregated ratio is in [lower, upper].
RejectionRule RatioRule(Aggregation aggregation, double lower, double upper,
                        double token_clamp);
// A rule of the geometric mean; tokens' log ratios are clamped at kSafetyClamp.
RejectionRule GeometricRule(double lower, double upper);
// A rule of the mean k3, clamped the same way; `upper` in nats.
RejectionRule K3Rule(double upper);

// A surrogate of that ratio, averaged over the tokens of response_mask.
LossSpec Loss(Surrogate surrogate, RatioSource source);
// Sets the interval [1 - low, 1 + high], or the surrogate's equivalent.
LossSpec Clipped(LossSpec loss, double low, double high);
// Clamps log ratios at kSafetyClamp, as all systems but TRL do.
LossSpec Clamped(LossSpec loss);
// Averages over each row's tokens, then over the rows with tokens.
LossSpec RowMeans(LossSpec loss);
// PPO of current/old with dual clip; infinity means no dual clip.
LossSpec PpoClip(double low, double high, double dual_clip);

CorrectionSpec WithLoss(CorrectionSpec spec, const LossSpec& loss);
// A spec with a loss only; the drift source is the loss's ratio.
CorrectionSpec OnlyLoss(const LossSpec& loss);

constexpr MethodParameter Upper(double value) {
  return {"upper", "ratio", value, "largest importance weight, > 0"};
}
constexpr MethodParameter Lower(double value) {
  return {"lower", "ratio", value, "smallest importance weight, >= 0"};
}
constexpr MethodParameter KeepLower(double value) {
  return {"keep_lower", "ratio", value, "keep interval, lower end, >= 0"};
}
constexpr MethodParameter KeepUpper(double value) {
  return {"keep_upper", "ratio", value, "keep interval, upper end, > 0"};
}
constexpr MethodParameter KeepNats(double value) {
  return {"keep_upper", "nats", value, "largest mean k3 of a sequence, > 0"};
}
constexpr MethodParameter ClipLow(double value) {
  return {"clip_low", "ratio", value,
          "distance of the clip interval's lower end from 1, >= 0"};
}
constexpr MethodParameter ClipHigh(double value) {
  return {"clip_high", "ratio", value,
          "distance of the clip interval's upper end from 1, >= 0"};
}
constexpr MethodParameter DualClip(double value) {
  return {"dual_clip", "ratio", value,
          "where A < 0 the loss is at most -A dual_clip, > 1; infinity: none"};
}

inline constexpr std::string_view kLiu =
    "J. Liu, Y. Li et al., When Speed Kills Stability, 2025, "
    "https://richardli.xyz/rl-collapse";
inline constexpr std::string_view kTrustRegion =
    "Y. Li et al., Trust Region Masking, 2025, arXiv:2512.23075";
inline constexpr std::string_view kIcepop =
    "Ring-1T, Every Step Evolves (IcePop), 2025, arXiv:2510.18855";

}  // namespace counterweight::kernels::methods

#endif  // COUNTERWEIGHT_KERNELS_METHODS_BUILDING_BLOCKS_H_
