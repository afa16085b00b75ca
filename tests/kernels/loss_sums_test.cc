// The counts and sums of LossSums, by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

class LossSumsByHand : public EveryBackend {
 protected:
  struct Sums : LossSums {
    PeerLossSums peers;
  };
  Sums SumsOf(CorrectionSpec spec, const std::vector<Row>& rows) {
    spec.loss.peer_sums = true;
    const Corrected corrected = Correct(spec, OwnedBatch(rows));
    EXPECT_EQ(corrected.result.status, CorrectStatus::kOk);
    return {corrected.sums().loss, corrected.sums().peers.loss};
  }
};

LossSpec Clip(Surrogate surrogate) {
  LossSpec loss = {.surrogate = surrogate, .clip_low = 0.2, .clip_high = 0.3};
  loss.reduction = kPlainSum;
  return loss;
}

float Log(double ratio) { return static_cast<float>(std::log(ratio)); }

// Ratios 2, 0.5, 1.1 and 2 with advantages of both signs, and a row of its own.
std::vector<Row> Ratios() {
  return {PolicyRow({Log(2), Log(0.5), Log(1.1), Log(2)}, {1, -1, 1, -1}),
          PolicyRow({Log(0.5)}, {1})};
}

TEST_P(LossSumsByHand, PpoCountsBothPredicates) {
  const Sums sums = SumsOf(WithLoss(Clip(Surrogate::kPpoClip)), Ratios());
  EXPECT_EQ(sums.clipped, 2);
  EXPECT_EQ(sums.high, 1);
  EXPECT_EQ(sums.low, 1);
  EXPECT_EQ(sums.peers.clipped_kept, 2);
  EXPECT_NEAR(sums.peers.row_high, 0.25, 1e-12);
  EXPECT_NEAR(sums.peers.row_low, 0.25, 1e-12);
  EXPECT_EQ(sums.peers.row_high_range.min, 0);
  EXPECT_EQ(sums.peers.row_high_range.max, 0.25);
  EXPECT_EQ(sums.peers.mixed_rows, 1);
  EXPECT_NEAR(sums.ratio, 2 + 0.5 + 1.1 + 2 + 0.5, 1e-6);
  EXPECT_NEAR(sums.peers.clipped_ratio, 1.3 + 0.8 + 1.1 + 1.3 + 0.8, 1e-6);
  EXPECT_NEAR(sums.ratio_range.min, 0.5, 1e-6);
  EXPECT_NEAR(sums.ratio_range.max, 2, 1e-6);
  // The gradients -A r are -1.1, 2, -0.5.
  EXPECT_NEAR(sums.gradient_squared, 1.21 + 4 + 0.25, 1e-5);
  EXPECT_NEAR(sums.slope, 2 + 0.5 + 1.1 + 2 + 0.5, 1e-6);
  EXPECT_NEAR(sums.slope_clipped, 2 + 0.5, 1e-6);
  EXPECT_EQ(sums.slope_rejected, 0);
}

TEST_P(LossSumsByHand, TheCapComesBeforeHighAndDualClipIsCountedAlone) {
  LossSpec loss = Clip(Surrogate::kPpoClip);
  loss.dual_clip = 1.5;
  Sums sums = SumsOf(WithLoss(loss), Ratios());
  EXPECT_EQ(sums.capped_kept, 1);
  EXPECT_EQ(sums.high, 1);
  loss.ratio_cap = 1.2;
  sums = SumsOf(WithLoss(loss), Ratios());
  EXPECT_EQ(sums.high, 0) << "r is 1.2 after the cap";
}

TEST_P(LossSumsByHand, CispoIsClippedOutsideWhateverTheSign) {
  const Sums sums = SumsOf(WithLoss(Clip(Surrogate::kCispo)), Ratios());
  EXPECT_EQ(sums.clipped, 4);
  EXPECT_EQ(sums.high, 1);
  EXPECT_EQ(sums.low, 1);
  // Clipping removes |A| (r - clip(r)) if that is positive.
  EXPECT_NEAR(sums.slope_clipped, 2 * 0.7, 1e-6);
}

TEST_P(LossSumsByHand, RolloutIsIsClippedOnItsBound) {
  LossSpec loss = Clip(Surrogate::kRolloutIs);
  loss.clip_high = 0;
  const Sums sums =
      SumsOf(WithLoss(loss), {PolicyRow({0, Log(0.9), Log(2)}, {1, 1, 1})});
  EXPECT_EQ(sums.clipped, 2);
  EXPECT_EQ(sums.high, 1) << "r is 1 on its bound, not above";
}

// p - q of (0.6, 0.4), (0.4, 0.6), (0.4, 0.6), (0.5, 0.4): two outside, one
// without an advantage, one inside but above the cap of 1.2.
TEST_P(LossSumsByHand, DppoLeavesOutWhatHasNoAdvantage) {
  LossSpec loss = {.surrogate = Surrogate::kDppoTv,
                   .clip_low = 0.15,
                   .clip_high = 0.15,
                   .ratio_cap = 1.2,
                   .log_prob_form = true};
  Row row = PolicyRow({Log(0.6), Log(0.4), Log(0.4), Log(0.5)}, {1, -1, 0, 2});
  row[InputRole::kOld] = {Log(0.4), Log(0.6), Log(0.6), Log(0.4)};
  const Sums sums = SumsOf(WithLoss(loss), {row});
  EXPECT_EQ(sums.clipped, 2);
  EXPECT_EQ(sums.high, 1);
  EXPECT_EQ(sums.low, 1);
  EXPECT_EQ(sums.peers.clipped_zero_kept, 1);
  EXPECT_EQ(sums.capped_kept, 1);
}

TEST_P(LossSumsByHand, GeoMeanIsHighOnBothSidesAndClippedOnOne) {
  LossSpec loss = {
      .surrogate = Surrogate::kGeoMean, .clip_low = 0.2, .clip_high = 0.3};
  const Sums sums =
      SumsOf(WithLoss(loss), {PolicyRow({0.5f, -0.5f, 0.1f}, {1, 1, 1}),
                              PolicyRow({0.5f, -0.5f, 0.1f}, {-1, -1, -1})});
  EXPECT_EQ(sums.high, 2);
  EXPECT_EQ(sums.low, 2);
  EXPECT_EQ(sums.clipped, 2);
  EXPECT_EQ(sums.peers.phi, 0);
  // r is the row's: exp of (0.3 - 0.5 + 0.1) / 3 and (0.5 - 0.2 + 0.1) / 3.
  EXPECT_NEAR(sums.ratio, 3 * std::exp(-0.1 / 3) + 3 * std::exp(0.4 / 3), 1e-6);
}

TEST_P(LossSumsByHand, PhiOfEveryRow) {
  const LossSpec loss = {.surrogate = Surrogate::kVespo,
                         .over = TokenSet::kOriginal};
  Row empty = PolicyRow({0.5f}, {-1});
  empty.mask[0] = 0;
  const double up = 4 * std::exp(-3), down = 8 * std::exp(-2);
  // Without tokens q is 0 and phi 1, of either sign.
  EXPECT_NEAR(SumsOf(WithLoss(loss), {PolicyRow({Log(2)}, {1}),
                                      PolicyRow({Log(2)}, {-1}), empty})
                  .peers.phi,
              up + down + 1, 1e-6);
  EXPECT_EQ(SumsOf(WithLoss(loss), {}).peers.phi, 0);
}

// Token 1 is dropped; it counts in m and among the rejected.
TEST_P(LossSumsByHand, KeptAndOriginalTokensApart) {
  CorrectionSpec spec =
      WithRules({{.source = RatioSource::kCurrentOld, .upper = 0.5}});
  spec.loss = Clip(Surrogate::kPpoClip);
  spec.loss.metrics_source = RatioSource::kCurrentRollout;
  spec.loss.reduction = {.count = BatchCount::kOne, .scale = 0.5};
  Row row = PolicyRow({Log(0.5), Log(2)}, {-1, 3});
  row[InputRole::kRollout] = {-1, 25};
  const Sums sums = SumsOf(spec, {row});
  EXPECT_EQ(sums.clipped, 2);
  EXPECT_EQ(sums.peers.clipped_kept, 1);
  EXPECT_EQ(sums.high, 1);
  EXPECT_EQ(sums.peers.high_kept, 0);
  EXPECT_EQ(sums.peers.low_kept, 1);
  EXPECT_NEAR(sums.log_ratio, -24, 1e-5);
  EXPECT_NEAR(sums.log_ratio_kept, 1 + std::log(0.5), 1e-6);
  EXPECT_NEAR(sums.peers.abs_log_ratio_kept, 1 + std::log(0.5), 1e-6);
  EXPECT_NEAR(sums.slope, 0.5 * (0.5 + 6), 1e-6);
  EXPECT_NEAR(sums.slope_clipped, 0.5 * 0.5, 1e-6);
  EXPECT_NEAR(sums.slope_rejected, 0.5 * 6, 1e-6);
}

TEST_P(LossSumsByHand, TheSafetyClampIsOnOneSumAlone) {
  LossSpec loss = Clip(Surrogate::kReinforce);
  const Sums sums =
      SumsOf(WithLoss(loss), {PolicyRow({25.0f, -30.0f, 1.0f}, {1, 1, 1})});
  EXPECT_NEAR(sums.log_ratio_kept, -4, 1e-6);
  EXPECT_NEAR(sums.peers.abs_log_ratio_kept, 56, 1e-6);
  EXPECT_NEAR(sums.peers.safe_log_ratio_kept, 1, 1e-6);
  EXPECT_EQ(sums.ratio, 3) << "REINFORCE has no ratio";
}

TEST_P(LossSumsByHand, PaddingIsMeasuredAndChangesNothing) {
  LossSpec loss = Clip(Surrogate::kPpoClip);
  loss.kl = {.estimator = KlEstimator::kK3, .coefficient = 1};
  Row row = PolicyRow({0, Log(2), Log(0.5), Log(2)}, {1, 1, -1, NAN});
  row[InputRole::kRef] = {0, Log(2) - 0.5f, Log(0.5), Log(2)};
  row.mask = {1, 0, 0, 0};
  const Sums plain = SumsOf(WithLoss(loss), {row});
  loss.measures_padding = true;
  const Sums sums = SumsOf(WithLoss(loss), {row});
  EXPECT_EQ(sums.total, plain.total);
  EXPECT_EQ(sums.high, 0);
  EXPECT_EQ(sums.peers.padding_high, 1);
  EXPECT_EQ(sums.peers.padding_low, 1);
  EXPECT_NEAR(sums.peers.padding_kl, std::exp(-0.5) - 0.5, 1e-6);
  EXPECT_NEAR(sums.peers.padding_ratio_range.min, 0.5, 1e-6);
  EXPECT_NEAR(sums.peers.padding_ratio_range.max, 2, 1e-6);
  EXPECT_EQ(plain.peers.padding_high, 0);
  EXPECT_EQ(plain.peers.padding_kl, 0);
}

TEST_P(LossSumsByHand, NoLossIsNoSums) {
  const Sums sums = SumsOf(BusySpec(), {PolicyRow({0.1f}, {1})});
  EXPECT_EQ(sums.total, 0);
  EXPECT_EQ(sums.count, 0);
  EXPECT_EQ(sums.ratio, 0);
  EXPECT_EQ(sums.peers.phi, 0);
  EXPECT_EQ(sums.ratio_range.min, kUnbounded);
  EXPECT_EQ(sums.ratio_range.max, -kUnbounded);
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossSumsByHand);

}  // namespace
}  // namespace counterweight::kernels
