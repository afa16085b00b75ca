// A policy loss as data: the surrogate, its ratio, and the aggregation.
// Formulas and papers are in surrogates/ and METHODS.md; the gradient is always
// with respect to current_log_probs. Each surrogate's struct has its needs.
//
// For token t of row i: l = log ratio of `source`, clamped; r = exp(l); A the
// advantage; w the importance weight, after rules and normalization (1 where
// the spec has none); V the surrogate. The loss is
//
//   sum_i factor_i sum_t keep_t w_t V_t (counts_dropped: m_t)
//     + kl.coefficient sum_i kl_factor_i sum_t k_t
//
// with factors made by LossReduction. Weights, masks and divisors are
// constants to the gradient.
#ifndef COUNTERWEIGHT_KERNELS_LOSS_SPEC_H_
#define COUNTERWEIGHT_KERNELS_LOSS_SPEC_H_

#include <cstdint>
#include <limits>

namespace counterweight::kernels {

// Log ratio = numerator - denominator. kCurrentSelf is 0 with the gradient of
// current (old log-probs taken from the policy itself); kRefCurrent is the KL
// penalty's ref - current. Neither is for weights and rules. kMeans and
// kOtherMeans are means over turns; plans alone have them.
enum class RatioSource : uint8_t {
  kOldRollout,
  kCurrentRollout,
  kCurrentOld,
  kCurrentSelf,
  kRefCurrent,
  kMeans,
  kOtherMeans
};
inline constexpr int kNumRatioSources = 7;

// V, with lp = current log-prob, [low, high] = [1 - clip_low, 1 + clip_high].
enum class Surrogate : uint8_t {
  kNone,
  kPpoClip,    // max(-A min(r, ratio_cap), -A clip(r)); A < 0: <= -A dual_clip
  kCispo,      // -A clip(r) lp, clip(r) detached
  kSapo,       // -A sigmoid(tau (r - 1)) 4 / tau
  kReinforce,  // -A lp (also GPG)
  kDro,        // -(A lp - beta / 2 l^2)
  kDppoTv,     // -A r where p - q is within [-clip_low, clip_high]
  kDppoKl,     // -A r where the binary KL of p and q is within
  kGeoMean,    // -mean(A) exp(mean of l clipped against A): one per row
  kVespo,      // -A phi lp, phi detached, one per row and sign of A
  kRolloutIs,  // -A r lp where low < r < high, r detached
  kKlCov,      // -A r + covariance_kl_weight abs(l) on selected tokens
  kClipCov,    // kPpoClip, 0 on selected tokens
  kCrossEntropy,        // -lp
  kImportanceSampling,  // -A r
  kLast = kImportanceSampling,
};

// The level of r. kSequence: exp(mean of l over the row), the gradient going
// through the mean to every token of it (GSPO). kSequenceToken: the same
// number, each token receiving the gradient of its own r (GSPO-token).
// Other levels than kToken are for surrogates with kTraitLevels.
enum class LossLevel : uint8_t { kToken, kSequence, kSequenceToken };

// Tokens of response_mask, or those that the rules kept.
enum class TokenSet : uint8_t { kOriginal, kKept };

// factor_i = scale / count / row_i. A count of 0 makes the factor 0.
enum class BatchCount : uint8_t {
  kOne,           // scale holds the caller's global count
  kTokens,        // of response_mask
  kKeptTokens,    // of the keep mask
  kRowTokens,     // RowCount::kTokens of all rows: an empty one counts as one
  kRows,          // all rows, empty ones too
  kNonemptyRows,  // rows with a token of response_mask
  kKeptRows,      // rows with a kept token
  kGroups,        // Batch::num_groups
};
enum class RowCount : uint8_t {
  kOne,
  kTokens,       // the row's, of response_mask; at least 1
  kKeptTokens,   // the row's, of the keep mask; at least 1
  kGroupTokens,  // of response_mask in all rows of the row's group; at least 1
  kPerToken,  // times the row's tokens instead: factor_i = scale / count * n_i
  kGiven,     // Batch::row_divisors
};

struct LossReduction {
  BatchCount count = BatchCount::kTokens;
  RowCount row = RowCount::kOne;
  double scale = 1.0;

  bool operator==(const LossReduction&) const = default;
};

// k, with d = current - ref, or of another policy (KlSpec::source). k1: d; k2:
// d^2 / 2; k3: exp(-d) - 1 + d.
enum class KlEstimator : uint8_t { kNone, kK1, kK2, kK3, kAbs };

struct KlSpec {
  KlEstimator estimator = KlEstimator::kNone;
  double coefficient = 0.0;  // >= 0
  // d is of current and ref or, but for k3, of kCurrentRollout or kCurrentOld.
  RatioSource source = RatioSource::kRefCurrent;
  // Symmetric clamps of d before and of k after the formula, nats, > 0;
  // gradient 0 outside.
  double token_clamp = std::numeric_limits<double>::infinity();
  double value_clamp = std::numeric_limits<double>::infinity();
  // Value of the estimator, gradient of k2 (without clamps).
  bool straight_through = false;
  // With straight_through, times min(exp(current - old), this), a constant to
  // the gradient: the gradient of the KL divergence from tokens that old
  // sampled. > 0; 0: without that factor.
  double gradient_ratio_cap = 0.0;
  // k r, the gradient through r included: the surrogate's r or, with
  // has_own_ratio, exp(l) of ratio_source for each token, unclamped, which is a
  // constant where token_clamp bounds d, unless ratio_always_moves.
  bool importance_weighted = false;
  bool has_own_ratio = false;
  bool ratio_always_moves = false;
  RatioSource ratio_source = RatioSource::kCurrentSelf;
  // With importance_weighted: value_clamp bounds k r instead of k.
  bool clamps_product = false;
  // k w: the penalty has the token's importance weight, as V has.
  bool has_weight = false;
  TokenSet over = TokenSet::kKept;
  LossReduction reduction{};

  bool operator==(const KlSpec&) const = default;
};

struct LossSpec {
  static constexpr double kNoBound = std::numeric_limits<double>::infinity();

  Surrogate surrogate = Surrogate::kNone;
  LossLevel level = LossLevel::kToken;
  RatioSource source = RatioSource::kCurrentOld;
  // The log ratio that metrics (LossSums::log_ratio) are about.
  RatioSource metrics_source = RatioSource::kCurrentOld;
  // Clamp of l (kToken) or of the row's mean before exp; gradient 0 outside.
  // Not for surrogates that read l itself (kDro, kGeoMean, kVespo, kKlCov).
  double log_ratio_lower = -kNoBound;
  double log_ratio_upper = kNoBound;
  // Distances from 1 (kGeoMean: from 0, in nats; kDppo: of divergences), >= 0.
  double clip_low = kNoBound;
  double clip_high = kNoBound;
  double dual_clip = kNoBound;  // > 1
  // kPpoClip: cap of the unclipped branch. kDppo with log_prob_form: cap of r,
  // detached. > 0.
  double ratio_cap = kNoBound;
  // kDppo: -A r lp with r detached instead of -A r.
  bool log_prob_form = false;
  // kDppoKl: a divergence that is no number, because a log-prob is above 0,
  // counts as within the bounds (SkyRL's order of comparison). Otherwise only
  // what is proven to be within them trains.
  bool keeps_undefined_divergence = false;
  double tau_positive = 1.0;   // SAPO, A > 0
  double tau_negative = 1.05;  // SAPO, A <= 0
  double k_positive = 2.0;     // VESPO, A >= 0
  double lambda_positive = 3.0;
  double k_negative = 3.0;  // VESPO, A < 0
  double lambda_negative = 2.0;
  double beta = 0.0;  // DRO, > 0
  // kKlCov: the covariance_fraction of tokens with the largest (A - mean A)
  // (lp - mean lp), at least one. kClipCov: as many of those with a covariance
  // strictly between the bounds that PPO did not clip, at random by `seed`.
  double covariance_fraction = 2e-4;
  double covariance_lower = 1.0;
  double covariance_upper = 5.0;
  double covariance_kl_weight = 1.0;
  uint64_t seed = 0;
  // Tokens over which a row's mean and the covariance's means go; kOriginal for
  // kVespo, kKept for kGeoMean.
  TokenSet over = TokenSet::kKept;
  LossReduction reduction{};
  // A becomes float32(A factor_i) before everything, and the factor 1: for
  // surrogates that are not proportional to A.
  bool prescales_advantages = false;
  // A becomes the row's mean of A over `over`, as float32, before the loss and
  // after the rules: one advantage for a ratio of the whole row (AReaL's
  // sequence level). For levels other than kToken.
  bool averages_advantages = false;
  // V of tokens that rules dropped counts too: ROLL's token-mean has no mask.
  // For losses of tokens, without counts_padding.
  bool counts_dropped = false;
  // Width of the padded batch. kVespo: padding adds log of the weight of a
  // ratio of 1 to its row. 0: padding adds nothing.
  int64_t padded_length = 0;
  // Also compute PeerSums::loss.
  bool peer_sums = false;
  // Masked positions are read after all, for PeerLossSums::padding_*: a peer's
  // metrics include them. One that is not finite adds nothing.
  bool measures_padding = false;
  // The same, and the loss includes them (TRL's luspo), with the row's weight
  // or that of a ratio of 1, unless rules dropped all tokens of their row. No
  // gradient is theirs; what goes through the row's ratio its tokens receive.
  bool counts_padding = false;
  KlSpec kl{};
  // False: the spec's importance weight is computed and reported, but V is not
  // multiplied by it.
  bool applies_weight = true;
  // Weight and surrogate may correct the same drift twice.
  bool allow_double_correction = false;

  bool operator==(const LossSpec&) const = default;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_LOSS_SPEC_H_
