// Losses of whole rows by hand: levels of the ratio, GEO_MEAN, VESPO with
// weights, padding, selections by covariance.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

class LossRows : public EveryBackend {
 protected:
  // One row of log ratios; the loss is a plain sum.
  void ExpectRow(const CorrectionSpec& spec, const Row& row, double policy,
                 const std::vector<double>& gradient) {
    const Corrected corrected = Correct(spec, OwnedBatch({row}));
    ASSERT_EQ(corrected.result.status, CorrectStatus::kOk);
    EXPECT_NEAR(corrected.sums().loss.policy, policy,
                2e-6 * (1 + std::fabs(policy)));
    ASSERT_EQ(corrected.gradient.size(), gradient.size());
    for (size_t t = 0; t < gradient.size(); ++t)
      EXPECT_NEAR(corrected.gradient[t], gradient[t],
                  2e-6 * (1 + std::fabs(gradient[t])))
          << "token " << t;
  }
};

CorrectionSpec Sum(LossSpec loss) {
  loss.reduction = kPlainSum;
  return WithLoss(loss);
}

// r = exp(0.2) = 1.2214 for all tokens; A = 1 is clipped at 1.1, A = -2 is not.
TEST_P(LossRows, SequenceLevelSharesItsGradient) {
  LossSpec loss = {.surrogate = Surrogate::kPpoClip,
                   .level = LossLevel::kSequence,
                   .clip_low = 0.1,
                   .clip_high = 0.1};
  const Row row = PolicyRow({0.1f, 0.3f}, {1, -2});
  const double r = std::exp(0.2);
  ExpectRow(Sum(loss), row, -1.1 + 2 * r, {r, r});
  loss.level = LossLevel::kSequenceToken;
  ExpectRow(Sum(loss), row, -1.1 + 2 * r, {0, 2 * r});
}

TEST_P(LossRows, SequenceLevelClampsTheMean) {
  const LossSpec loss = {.surrogate = Surrogate::kImportanceSampling,
                         .level = LossLevel::kSequence,
                         .log_ratio_upper = 0.1};
  ExpectRow(Sum(loss), PolicyRow({0.5f, 0.3f}, {1, 2}), -3 * std::exp(0.1),
            {0, 0});
  // A token far above the clamp has no effect if the mean is inside.
  ExpectRow(Sum(loss), PolicyRow({0.5f, -0.5f}, {1, 2}), -3, {-1.5, -1.5});
}

TEST_P(LossRows, CispoOfARowWeighsEachToken) {
  const LossSpec loss = {.surrogate = Surrogate::kCispo,
                         .level = LossLevel::kSequence,
                         .clip_low = 0.5,
                         .clip_high = 0.1};
  ExpectRow(Sum(loss), PolicyRow({0.1f, 0.3f}, {1, -2}), -1.1 * 0.1 + 2.2 * 0.3,
            {-1.1, 2.2});
}

// The rule drops token 2; its log ratio counts in the mean over the original
// tokens, and it gets its share of the gradient there.
TEST_P(LossRows, MeansGoOverTheOriginalTokensIfAsked) {
  LossSpec loss = {.surrogate = Surrogate::kImportanceSampling,
                   .level = LossLevel::kSequence};
  CorrectionSpec spec =
      WithRules({{.source = RatioSource::kCurrentOld, .upper = 0.5}});
  const Row row = PolicyRow({0.1f, 0.2f, 0.9f}, {1, 2, 8});
  spec.drift_source = RatioSource::kCurrentOld;
  loss.reduction = kPlainSum;
  spec.loss = loss;
  const double kept = std::exp(0.15);
  ExpectRow(spec, row, -3 * kept, {-1.5 * kept, -1.5 * kept, 0});
  spec.loss.over = TokenSet::kOriginal;
  const double all = std::exp(0.4);
  ExpectRow(spec, row, -3 * all, {-all, -all, -all});
}

// l clipped at 0.2 where A > 0, not where A < 0.
TEST_P(LossRows, GeoMeanClipsAgainstTheAdvantage) {
  LossSpec loss = {
      .surrogate = Surrogate::kGeoMean, .clip_low = 0.2, .clip_high = 0.2};
  loss.reduction = {.count = BatchCount::kOne, .row = RowCount::kKeptTokens};
  const double up = std::exp(0.15);
  ExpectRow(WithLoss(loss), PolicyRow({0.1f, 0.5f}, {1, 1}), -up, {-up / 2, 0});
  const double down = std::exp(0.3);
  ExpectRow(WithLoss(loss), PolicyRow({0.1f, 0.5f}, {-1, -1}), down,
            {down / 2, down / 2});
  const double low = std::exp(-0.15);
  ExpectRow(WithLoss(loss), PolicyRow({-0.1f, -0.5f}, {-2, -2}), 2 * low,
            {low, 0});
  // A token without advantage has no log ratio, but counts in both means.
  const double half = std::exp(0.05);
  ExpectRow(WithLoss(loss), PolicyRow({0.1f, 0.5f}, {1, 0}), -half / 2,
            {-half / 4, 0});
}

// Half of the gradient, like verl's, if l is exactly at a bound.
TEST_P(LossRows, GeoMeanOnItsBoundMovesHalf) {
  LossSpec loss = {
      .surrogate = Surrogate::kGeoMean, .clip_low = 0.5, .clip_high = 0.25};
  loss.reduction = {.count = BatchCount::kOne, .row = RowCount::kKeptTokens};
  const double up = std::exp(0.25);
  ExpectRow(WithLoss(loss), PolicyRow({0.25f}, {1}), -up, {-up / 2});
  const double low = std::exp(-0.5);
  ExpectRow(WithLoss(loss), PolicyRow({-0.5f}, {-1}), low, {low / 2});
}

TEST_P(LossRows, GeoMeanTakesTheGeometricMeanOfWeights) {
  CorrectionSpec spec =
      WithWeight({.level = Level::kToken, .source = RatioSource::kOldRollout});
  spec.loss = {.surrogate = Surrogate::kGeoMean};
  spec.loss.reduction = {.count = BatchCount::kOne,
                         .row = RowCount::kKeptTokens};
  Row row = PolicyRow({0.1f, 0.5f}, {1, 1});
  row[InputRole::kRollout] = {-0.3f, 0.1f};
  // Weights exp(0.3), exp(-0.1); log ratios 0.1, 0.5.
  const double v = -std::exp(0.3) * std::exp(0.1);
  ExpectRow(spec, row, v, {v / 2, v / 2});
  spec.loss.applies_weight = false;
  ExpectRow(spec, row, -std::exp(0.3),
            {-std::exp(0.3) / 2, -std::exp(0.3) / 2});
}

// q = sum of l (0.4) and of log w (0.2).
TEST_P(LossRows, VespoSumsLogRatiosAndLogWeights) {
  CorrectionSpec spec =
      WithWeight({.level = Level::kToken, .source = RatioSource::kOldRollout});
  spec.loss = {.surrogate = Surrogate::kVespo, .over = TokenSet::kOriginal};
  spec.loss.reduction = kPlainSum;
  Row row = PolicyRow({0.1f, 0.3f}, {1, -1});
  row[InputRole::kRollout] = {-0.3f, 0.1f};
  const double w = std::exp(0.6);
  const double up = std::exp(3 + 2 * 0.6 - 3 * w);
  const double down = std::exp(2 + 3 * 0.6 - 2 * w);
  ExpectRow(spec, row, -up * 0.1 + down * 0.3, {-up, down});
}

// Two more positions of a weight of 1 that the bound makes 0.9.
TEST_P(LossRows, VespoCountsTheWeightsOfPadding) {
  CorrectionSpec spec = WithWeight({.level = Level::kToken,
                                    .source = RatioSource::kOldRollout,
                                    .bound = Bound::kTruncate,
                                    .upper = 0.9});
  spec.loss = {.surrogate = Surrogate::kVespo,
               .over = TokenSet::kOriginal,
               .padded_length = 4};
  spec.loss.reduction = kPlainSum;
  Row row = PolicyRow({0.1f, 0.3f}, {1, 1});
  row[InputRole::kRollout] = {0.2f, 0.2f};
  const double q = 0.4 - 0.4 + 2 * std::log(0.9);
  const double phi = std::exp(3 + 2 * q - 3 * std::exp(q));
  ExpectRow(spec, row, -phi * 0.4, {-phi, -phi});
}

// The masked position counts in the loss. Its V uses the row's ratio, through
// which it moves the row's tokens, or its own ratio, which moves nothing.
TEST_P(LossRows, PaddingCountsWithoutAGradientOfItsOwn) {
  LossSpec loss = {.surrogate = Surrogate::kPpoClip,
                   .level = LossLevel::kSequence,
                   .padded_length = 3,
                   .counts_padding = true};
  Row row = PolicyRow({0.1f, 0.5f, 0.3f}, {1, 4, 1});
  row.mask[1] = 0;
  const double r = std::exp(0.2);
  ExpectRow(Sum(loss), row, -6 * r, {-3 * r, 0, -3 * r});
  loss.level = LossLevel::kToken;
  const double own[] = {std::exp(0.1), std::exp(0.5), std::exp(0.3)};
  ExpectRow(Sum(loss), row, -own[0] - 4 * own[1] - own[2],
            {-own[0], 0, -own[2]});
  loss.counts_padding = false;
  ExpectRow(Sum(loss), row, -own[0] - own[2], {-own[0], 0, -own[2]});
}

// The mean advantage is 0, the mean log-prob 0.1: covariances 0.2, 0.1, 0,
// 0.04.
Row CovariantRow() {
  return PolicyRow({0.5f, -0.1f, 0.1f, -0.1f}, {0.5f, -0.5f, 0.2f, -0.2f});
}

TEST_P(LossRows, KlCovPenalizesTheLargestCovariances) {
  LossSpec loss = {.surrogate = Surrogate::kKlCov,
                   .covariance_fraction = 0.5,
                   .covariance_kl_weight = 0.3};
  const double a = std::exp(0.5), b = std::exp(-0.1), c = std::exp(0.1);
  // The first two are selected.
  const double plain = -0.5 * a + 0.5 * b - 0.2 * c + 0.2 * b;
  ExpectRow(Sum(loss), CovariantRow(), plain + 0.3 * (0.5 + 0.1),
            {-0.5 * a + 0.3, 0.5 * b - 0.3, -0.2 * c, 0.2 * b});
  // At least one.
  loss.covariance_fraction = 0.01;
  ExpectRow(Sum(loss), CovariantRow(), plain + 0.3 * 0.5,
            {-0.5 * a + 0.3, 0.5 * b, -0.2 * c, 0.2 * b});
}

TEST_P(LossRows, KlCovSelectsTheFirstOfEqualCovariances) {
  const LossSpec loss = {.surrogate = Surrogate::kKlCov,
                         .covariance_fraction = 0.5,
                         .covariance_kl_weight = 4};
  // Both have a covariance of 0.5 * 0.25.
  const Row row = PolicyRow({0.25f, -0.25f}, {0.5f, -0.5f});
  ExpectRow(Sum(loss), row, -0.5 * std::exp(0.25) + 0.5 * std::exp(-0.25) + 1,
            {-0.5 * std::exp(0.25) + 4, 0.5 * std::exp(-0.25)});
}

TEST_P(LossRows, ClipCovSilencesWhatIsBetweenTheBounds) {
  LossSpec loss = {.surrogate = Surrogate::kClipCov,
                   .covariance_fraction = 0.5,
                   .covariance_lower = 0.08,
                   .covariance_upper = 1};
  const double a = std::exp(0.5), b = std::exp(-0.1), c = std::exp(0.1);
  ExpectRow(Sum(loss), CovariantRow(), -0.2 * c + 0.2 * b,
            {0, 0, -0.2 * c, 0.2 * b});
  loss.covariance_upper = 0.15;
  ExpectRow(Sum(loss), CovariantRow(), -0.5 * a - 0.2 * c + 0.2 * b,
            {-0.5 * a, 0, -0.2 * c, 0.2 * b});
  // Tokens that PPO clips are not selected: token 1 is selected, token 0 is
  // clipped at 1.2.
  loss.covariance_upper = 1;
  loss.clip_low = loss.clip_high = 0.2;
  ExpectRow(Sum(loss), CovariantRow(), -0.5 * 1.2 - 0.2 * c + 0.2 * b,
            {0, 0, -0.2 * c, 0.2 * b});
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossRows);

}  // namespace
}  // namespace counterweight::kernels
