// Means of token quantities as slime's and miles' losses average them: of each
// row's sum, divided by the row's divisor, or of all tokens.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_MEANS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_MEANS_H_

#include <cstdint>

#include "server/engine/corrected_tokens.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/slime_loss.h"

namespace counterweight::server {

// In the order of their names in slime_means.cc.
enum class SlimeMean : uint8_t {
  kPolicyKl,
  kClipFraction,
  kDifference,
  kRolloutKl,
  kPolicyRatio,
  kEffectiveSize,
  kOpsmFraction,
  kTis,
  kTisAbs,
  kTisClipFraction,
  kTrainingLogPpl,
  kTrainingPpl,
  kRolloutLogPpl,
  kRolloutPpl,
  kKl,
  kK3Kl,
  kLogPplDifference,
  kLogPplAbsDifference,
  kPplRatio,
  kChi2Token,
  kChi2Sequence,
  kBeforeBound,
  kAfterBound,
  kTruncateFraction,
  kTisClipLow,
  kTisClipHigh,
  kTisMaskLow,
  kTisMaskHigh,
  kRsMaskLow,
  kRsMaskHigh,
  kCatastrophicToken,
  kCatastrophicSequence,
  kMeanAfterRejection,
  kNormFactor,
  kMeanFinal,
  kMinFinal,
  kMaxFinal,
  kCount,
};

class SlimeMeans {
 public:
  // `reduction` must outlive it.
  explicit SlimeMeans(const SlimeReduction& reduction)
      : reduction_(reduction) {}

  // The row that the calls up to the next one are of.
  void StartRow(const RowTokens& row);

  // Tokens of the row that count.
  double tokens() const { return tokens_; }
  // Their divisor in the row's own mean, which is 0 without tokens.
  double own_divisor() const { return tokens_ > 0.0 ? tokens_ : 1.0; }

  // The quantity's sum over the row's tokens.
  void AddSum(SlimeMean mean, double sum);
  // A finite value, or a row with tokens: the quantity of each of its tokens.
  void AddValue(SlimeMean mean, double value) { AddSum(mean, value * tokens_); }
  // A sum that is divided by the row's own tokens, whatever its divisor is.
  void AddOwnSum(SlimeMean mean, double sum);

  // Writes those with an addend. `count` is SlimeCount().
  void Write(double count, MetricMap* metrics) const;

 private:
  static constexpr int kMeans = static_cast<int>(SlimeMean::kCount);

  const SlimeReduction& reduction_;
  double tokens_ = 0.0;
  double factor_ = 1.0;
  double sums_[kMeans] = {};
  bool has_[kMeans] = {};
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_MEANS_H_
