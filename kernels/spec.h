// A correction method as data. Everything here is a POD that goes to a device
// by value; words and formulas are those of kernels/README.md.
#ifndef COUNTERWEIGHT_KERNELS_SPEC_H_
#define COUNTERWEIGHT_KERNELS_SPEC_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/loss_spec.h"
#include "kernels/spec_violation.h"

namespace counterweight::kernels {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// Rules of one spec. Token reasons are 16 bits: one per rule, and bit 15 for
// tokens dropped because they were non-finite.
inline constexpr int kMaxRules = 15;
inline constexpr uint16_t kReasonNonFinite = uint16_t{1} << 15;

// kToken: l_t; kSequence: sum of l; kGeometric: mean of l; kPrefix: mean of l
// over the tokens 0..t; kTurn: mean of l over t's turn, a run of positions with
// response_mask 1.
enum class Level : uint8_t {
  kNone,
  kToken,
  kSequence,
  kGeometric,
  kPrefix,
  kTurn,
  kLast = kTurn
};

// kTruncate clamps into the interval, kMask zeroes outside; equality keeps.
enum class Bound : uint8_t { kNone, kTruncate, kMask };

// kRatio: l; kK2: l^2 / 2; kK3: exp(l) - 1 - l. With p and q the exponentials
// of the ratio's denominator and numerator, within kLeastProbability of 0 and
// 1, kBinaryKl: p log(p / q) + (1 - p) log((1 - p) / (1 - q)), nats;
// kTotalVariation: |p - q|. Without those bounds kDifference: q - p.
// kReverseK3: exp(-l) - 1 + l.
enum class Estimator : uint8_t {
  kRatio,
  kK2,
  kK3,
  kBinaryKl,
  kTotalVariation,
  kDifference,
  kReverseK3,
  kLast = kReverseK3
};
inline constexpr double kLeastProbability = 1e-6;

// True for those that take no clamp of log ratios: all but the first three.
bool IsDivergence(Estimator estimator);

// kToken decides about each token by its own number, kPrefixMean by the mean
// over the tokens 0..t, kTurnMean by that over its turn. The others decide
// about the sequence: kAll keeps it if every token is inside the interval. A
// sequence without tokens that the rule covers is kept.
enum class Aggregation : uint8_t {
  kToken,
  kSum,
  kMean,
  kMax,
  kAll,
  kPrefixMean,
  kTurnMean,
  kLast = kTurnMean
};

// Only tokens with an advantage A < 0, A > 0, A <= 0.
enum class Condition : uint8_t {
  kAlways,
  kNegativeAdvantage,
  kPositiveAdvantage,
  kNonPositiveAdvantage,
  kLast = kNonPositiveAdvantage
};
// kDrop removes the token from the keep mask; kZeroWeight leaves it there with
// the weight 0.
enum class Effect : uint8_t { kDrop, kZeroWeight };
// kParallel: every rule covers response_mask. kSequential: each covers what the
// kDrop rules before it kept.
enum class Evaluation : uint8_t { kParallel, kSequential };
enum class NonFinitePolicy : uint8_t { kReject, kDrop, kNeutralize };

// Importance weight: bound(exp(clamp(level(clamp(l))))).
struct WeightSpec {
  Level level = Level::kNone;
  RatioSource source = RatioSource::kOldRollout;
  // Symmetric clamps of log ratios, nats, > 0.
  double token_clamp = kUnbounded;
  double aggregate_clamp = kUnbounded;
  Bound bound = Bound::kNone;
  // Bounds of the ratio, inclusive. 0 and infinity mean an absent end.
  // kTruncate needs a lower bound within float32's range.
  double lower = 0.0;
  double upper = kUnbounded;
  // Divide by the batch mean of the bounded weights: over tokens (kToken,
  // kPrefix, kTurn) or sequences (kSequence, kGeometric) that count in
  // response_mask.
  // A mean that is <= 1e-8 or not finite leaves the weights as they are.
  bool normalize = false;
  // That mean is over all sequences: one without a token counts with 0. For
  // kSequence and kGeometric.
  bool counts_empty_rows = false;
  // Normalize by this mean instead of the batch's own, > 0: the mean over all
  // data-parallel ranks. 0: the batch's own.
  double given_mean = 0.0;
  // The aggregate sees the mask that the first after_rule rules left; a row
  // without any such token has the weight 1.
  int32_t after_rule = 0;

  bool operator==(const WeightSpec&) const = default;
};

// Keeps a token where lower <= statistic <= upper or the condition is false.
struct RejectionRule {
  RatioSource source = RatioSource::kOldRollout;
  Estimator estimator = Estimator::kRatio;
  Aggregation aggregation = Aggregation::kToken;
  Condition condition = Condition::kAlways;
  Effect effect = Effect::kDrop;
  // Symmetric clamp of l before the estimator, nats, > 0; not for divergences.
  double token_clamp = kUnbounded;
  // Symmetric clamp of the aggregated statistic; kRatio only.
  double aggregate_clamp = kUnbounded;
  // Inclusive bounds of the statistic itself: for kRatio they are log ratios
  // (the log of the user's ratio bounds, taken once, in double).
  double lower = -kUnbounded;
  double upper = kUnbounded;

  bool operator==(const RejectionRule&) const = default;
};

struct CorrectionSpec {
  WeightSpec weight;
  int32_t num_rules = 0;
  RejectionRule rules[kMaxRules];
  Evaluation evaluation = Evaluation::kParallel;
  NonFinitePolicy non_finite = NonFinitePolicy::kReject;
  // With kReject: a NaN of the rollout log-probs is no error but a number that
  // the sampler did not report, and every log ratio to it is 0. Counted in
  // BatchSums::non_finite_tokens. (TRL since 1.11.0: grpo_trainer.py.)
  bool unknown_rollout = false;
  // The ratio of the drift metrics.
  RatioSource drift_source = RatioSource::kOldRollout;
  // Also compute PeerSums::correction; its probabilities cost two exponentials
  // per token.
  bool peer_sums = false;
  // The policy loss; surrogate kNone: none.
  LossSpec loss;
  // False: outputs and the loss alone are wanted. Of BatchSums only the counts
  // of tokens, sequences, non-finite tokens and positive log-probs and the loss
  // itself hold then; outputs have the same bits.
  bool metrics = true;

  bool operator==(const CorrectionSpec&) const = default;
};

// Every illegal value and combination of `spec`, empty if there is none.
std::vector<SpecViolation> Validate(const CorrectionSpec& spec);

// True for rules that decide about the whole sequence.
bool IsSequenceRule(Aggregation aggregation);

// True if the surrogate is a function of the ratio.
bool HasRatio(Surrogate surrogate);

// True for weights that are one number per sequence.
constexpr bool IsSequenceLevel(Level level) {
  return level == Level::kSequence || level == Level::kGeometric;
}

// Names as in the methods reference: "old_rollout", "geometric", "mean_k3".
const char* Name(RatioSource source);
const char* Name(Level level);
const char* Name(Bound bound);
const char* Name(Estimator estimator);
const char* Name(Aggregation aggregation);
const char* Name(Surrogate surrogate);
std::string RuleName(const RejectionRule& rule);

// One line for logs.
std::string ToString(const CorrectionSpec& spec);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_SPEC_H_
