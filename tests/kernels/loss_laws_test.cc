// Laws that hold for the loss of every batch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"
#include "tests/testing/matchers.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using LossLaws = EveryBackend;

// Exactly +0.
bool IsZero(float x) {
  constexpr float kZero = 0.0f;
  return std::memcmp(&x, &kZero, sizeof(x)) == 0;
}

std::vector<Row> RandomPolicies(uint64_t seed, double spread) {
  Random random(seed);
  return RandomRows(random, {5, 40, 0, 600, 4200, 1},
                    {.spread = spread, .masked = 0.3, .highest = -1e-3});
}

// Returns a spec with all features of a loss: a weight, rules, a penalty.
CorrectionSpec BusyLossSpec(Surrogate surrogate) {
  constexpr double kSpread = 0.1;
  CorrectionSpec spec = BusySpec();
  spec.loss = BusyLoss(surrogate, kSpread);
  spec.loss.kl = {.estimator = KlEstimator::kK3,
                  .coefficient = 0.1,
                  .token_clamp = 2 * kSpread};
  spec.loss.allow_double_correction = true;
  return spec;
}

// Surrogates with r = 1 for equal policies: V = -A and its slope -A.
std::vector<Surrogate> RatioSurrogates() {
  return {Surrogate::kPpoClip, Surrogate::kDppoTv, Surrogate::kDppoKl,
          Surrogate::kKlCov, Surrogate::kImportanceSampling};
}

TEST_P(LossLaws, EqualPoliciesLoseTheMeanAdvantage) {
  std::vector<Row> rows = RandomPolicies(1, 0.1);
  for (Row& row : rows) row[InputRole::kOld] = row[InputRole::kCurrent];
  const OwnedBatch batch(rows);
  for (Surrogate surrogate : RatioSurrogates()) {
    SCOPED_TRACE(Name(surrogate));
    LossSpec loss = BusyLoss(surrogate, 0.1);
    loss.log_prob_form = false;
    if (surrogate == Surrogate::kDppoTv) loss.ratio_cap = LossSpec::kNoBound;
    const Corrected corrected = Correct(WithLoss(loss), batch);
    const LossSums& sums = corrected.sums().loss;
    double advantages = 0.0, size = 0.0;
    for (const Row& row : rows) {
      for (int64_t t = 0; t < row.size(); ++t) {
        if (row.mask[t] == 0) continue;
        advantages += row[InputRole::kAdvantages][t];
        size += std::abs(row[InputRole::kAdvantages][t]);
      }
    }
    const auto n = static_cast<double>(corrected.sums().tokens);
    EXPECT_NEAR(sums.total, -advantages / n, 1e-6 * size / n);
    EXPECT_EQ(sums.ratio, n);
    EXPECT_EQ(sums.clipped, 0);
    size_t position = 0;
    for (const Row& row : rows) {
      for (int64_t t = 0; t < row.size(); ++t, ++position) {
        const float advantage =
            row.mask[t] == 0 ? 0.0f : row[InputRole::kAdvantages][t];
        EXPECT_FLOAT_EQ(corrected.gradient[position],
                        static_cast<float>(-advantage / n));
      }
    }
  }
}

TEST_P(LossLaws, WhatIsMaskedChangesNoByteAndHasNoGradient) {
  Random random(2);
  const std::vector<Row> clean = RandomPolicies(3, 0.1);
  std::vector<Row> dirty = clean;
  constexpr float kBad[] = {kNaN, std::numeric_limits<float>::infinity(),
                            -3e38f};
  for (Row& row : dirty)
    for (std::vector<float>& values : row.values)
      for (size_t t = 0; t < values.size(); ++t)
        if (row.mask[t] == 0) values[t] = kBad[random.Integer(0, 2)];
  const OwnedBatch clean_batch(clean), dirty_batch(dirty);
  for (Surrogate surrogate : Surrogates()) {
    SCOPED_TRACE(Name(surrogate));
    const CorrectionSpec spec = BusyLossSpec(surrogate);
    const Corrected a = Correct(spec, clean_batch),
                    b = Correct(spec, dirty_batch);
    ASSERT_EQ(b.result.status, CorrectStatus::kOk);
    EXPECT_TRUE(SameOutputs(a, b));
    EXPECT_TRUE(SameSums(a.sums(), b.sums()));
    const Batch view = dirty_batch.view();
    for (int64_t t = 0; t < dirty_batch.num_positions(); ++t)
      ASSERT_TRUE(view.response_mask[t] != 0 || IsZero(b.gradient[t])) << t;
  }
}

TEST_P(LossLaws, WhatIsDroppedHasNoGradient) {
  std::vector<Row> rows = RandomPolicies(4, 0.1);
  // Policy DROP takes these.
  for (Row& row : rows)
    for (int64_t t = 0; t < row.size(); t += 7)
      row[InputRole::kCurrent][t] = kNaN;
  const OwnedBatch batch(rows);
  for (Surrogate surrogate : Surrogates()) {
    SCOPED_TRACE(Name(surrogate));
    CorrectionSpec spec = BusyLossSpec(surrogate);
    spec.non_finite = NonFinitePolicy::kDrop;
    const Corrected corrected = Correct(spec, batch);
    ASSERT_EQ(corrected.result.status, CorrectStatus::kOk);
    EXPECT_GT(corrected.sums().tokens, corrected.sums().kept_tokens);
    EXPECT_GT(corrected.sums().kept_tokens, 0);
    for (int64_t t = 0; t < batch.num_positions(); ++t)
      ASSERT_TRUE(corrected.keep_mask[t] != 0 || IsZero(corrected.gradient[t]))
          << t;
  }
}

// A, factor and penalty are multiplied by a power of 2, so the result is exact.
TEST_P(LossLaws, TwiceTheAdvantageIsTwiceTheLoss) {
  const std::vector<Row> once = RandomPolicies(5, 0.1);
  std::vector<Row> twice = once;
  for (Row& row : twice)
    for (float& advantage : row[InputRole::kAdvantages]) advantage *= 2;
  const OwnedBatch a(once), b(twice);
  for (Surrogate surrogate : Surrogates()) {
    // The loss is not proportional to A, or A selects tokens.
    if (HasTrait(surrogate, kTraitSelection) || surrogate == Surrogate::kDro ||
        surrogate == Surrogate::kCrossEntropy)
      continue;
    SCOPED_TRACE(Name(surrogate));
    CorrectionSpec spec = BusyLossSpec(surrogate);
    spec.loss.kl = {};
    const Corrected x = Correct(spec, a), y = Correct(spec, b);
    EXPECT_NE(x.sums().loss.total, 0);
    EXPECT_EQ(2 * x.sums().loss.total, y.sums().loss.total);
    for (size_t t = 0; t < x.gradient.size(); ++t)
      ASSERT_EQ(2 * x.gradient[t], y.gradient[t]) << t;
  }
}

// Tiles without a log ratio near the clamp take another way than others.
TEST_P(LossLaws, ATokenBeyondTheClampChangesNoOther) {
  constexpr int64_t kToken = 70;
  std::vector<Row> near = RandomPolicies(8, 0.1);
  const auto set_log_ratio = [](Row& row, float log_ratio) {
    row.mask[kToken] = 1;
    row[InputRole::kCurrent][kToken] = row[InputRole::kOld][kToken] + log_ratio;
  };
  std::vector<Row> far = near;
  for (size_t i = 0; i < near.size(); ++i) {
    if (near[i].size() <= kToken) continue;
    set_log_ratio(near[i], 0.5f);
    set_log_ratio(far[i], 2.5f);
  }
  const OwnedBatch a(near), b(far);
  for (Surrogate surrogate : RatioSurrogates()) {
    // Its tokens are chosen from the whole batch.
    if (HasTrait(surrogate, kTraitSelection)) continue;
    SCOPED_TRACE(Name(surrogate));
    LossSpec loss = BusyLoss(surrogate, 0.1);
    loss.source = RatioSource::kCurrentOld;
    loss.log_ratio_lower = -2;
    loss.log_ratio_upper = 2;
    const Corrected x = Correct(WithLoss(loss), a);
    const Corrected y = Correct(WithLoss(loss), b);
    size_t position = 0;
    for (const Row& row : near) {
      for (int64_t t = 0; t < row.size(); ++t, ++position) {
        if (t == kToken) {
          EXPECT_TRUE(IsZero(y.gradient[position]));
        } else {
          ASSERT_EQ(x.gradient[position], y.gradient[position]) << t;
        }
      }
    }
  }
}

TEST_P(LossLaws, TheLossChangesNothingElse) {
  const OwnedBatch batch(RandomPolicies(6, 0.1));
  const Corrected without = Correct(BusySpec(), batch);
  for (Surrogate surrogate : Surrogates()) {
    SCOPED_TRACE(Name(surrogate));
    Corrected with = Correct(BusyLossSpec(surrogate), batch);
    with.gradient = without.gradient;
    with.result.sums.loss = without.sums().loss;
    with.result.sums.peers.loss = without.sums().peers.loss;
    EXPECT_TRUE(SameOutputs(without, with));
    EXPECT_TRUE(SameSums(without.sums(), with.sums()));
  }
}

TEST_P(LossLaws, TheGradientIsAnOutputLikeOthers) {
  const OwnedBatch batch(RandomPolicies(7, 0.1));
  for (Surrogate surrogate : Surrogates()) {
    SCOPED_TRACE(Name(surrogate));
    const CorrectionSpec spec = BusyLossSpec(surrogate);
    const Corrected all = Correct(spec, batch);
    EXPECT_TRUE(
        SameSums(corrector_->Correct(spec, batch.view(), {}).sums, all.sums()));
    std::vector<float> gradient(all.gradient.size(), kNaN);
    Outputs outputs;
    outputs.gradient = gradient.data();
    EXPECT_TRUE(SameSums(corrector_->Correct(spec, batch.view(), outputs).sums,
                         all.sums()));
    EXPECT_EQ(gradient, all.gradient);
  }
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossLaws);

}  // namespace
}  // namespace counterweight::kernels
