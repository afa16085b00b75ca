// REJECT, DROP and NEUTRALIZE with a loss.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/backends.h"
#include "tests/testing/loss_specs.h"

namespace counterweight::kernels {
namespace {

// Log ratios 0.5, 0.25 and 1, with a bad number in token 1.
Row BadRow(InputRole role) {
  Row row = PolicyRow({0.5f, 0.25f, 1.0f}, {2, 3, 4});
  row[InputRole::kRef] = {0, 0, 0};
  row[role][1] = kNaN;
  return row;
}

class LossNonFinite : public EveryBackend {
 protected:
  Corrected CorrectBad(LossSpec loss, InputRole role, NonFinitePolicy policy) {
    loss.reduction = kPlainSum;
    CorrectionSpec spec = WithLoss(loss);
    spec.non_finite = policy;
    return Correct(spec, OwnedBatch({BadRow(role)}));
  }
};

constexpr LossSpec kSampling = {.surrogate = Surrogate::kImportanceSampling};

TEST_P(LossNonFinite, RejectNamesWhatTheLossReads) {
  LossSpec loss = kSampling;
  loss.kl.estimator = KlEstimator::kK3;
  for (InputRole role : {InputRole::kCurrent, InputRole::kOld, InputRole::kRef,
                         InputRole::kAdvantages}) {
    const CorrectResult result =
        CorrectBad(loss, role, NonFinitePolicy::kReject).result;
    ASSERT_EQ(result.status, CorrectStatus::kNonFinite);
    EXPECT_EQ(result.non_finite.role, role);
    EXPECT_EQ(result.non_finite.token, 1);
    EXPECT_TRUE(result.non_finite.input);
  }
  EXPECT_EQ(CorrectBad(kSampling, InputRole::kRef, NonFinitePolicy::kReject)
                .result.status,
            CorrectStatus::kOk)
      << "nothing reads ref without a penalty";
}

TEST_P(LossNonFinite, DropIsMaskZero) {
  const Corrected corrected =
      CorrectBad(kSampling, InputRole::kCurrent, NonFinitePolicy::kDrop);
  const double e = std::exp(1.0), r = std::exp(0.5);
  EXPECT_NEAR(corrected.sums().loss.total, -2 * r - 4 * e, 1e-5);
  EXPECT_EQ(corrected.gradient[1], 0.0f);
}

// The ratio is 1 and the advantage stays.
TEST_P(LossNonFinite, NeutralizeIsRatioOne) {
  const Corrected corrected =
      CorrectBad(kSampling, InputRole::kOld, NonFinitePolicy::kNeutralize);
  const double e = std::exp(1.0), r = std::exp(0.5);
  EXPECT_NEAR(corrected.sums().loss.total, -2 * r - 3 - 4 * e, 1e-5);
  EXPECT_EQ(corrected.gradient[1], -3.0f);
}

// Without a log-prob or an advantage there is no gradient.
TEST_P(LossNonFinite, NeutralizeNeedsACurrentLogProbAndAnAdvantage) {
  for (InputRole role : {InputRole::kCurrent, InputRole::kAdvantages}) {
    const Corrected corrected =
        CorrectBad(kSampling, role, NonFinitePolicy::kNeutralize);
    const double e = std::exp(1.0), r = std::exp(0.5);
    EXPECT_NEAR(corrected.sums().loss.total, -2 * r - 4 * e, 1e-5);
    EXPECT_EQ(corrected.gradient[1], 0.0f);
  }
}

TEST_P(LossNonFinite, NeutralizeCountsInTheMeanOfARow) {
  LossSpec loss = kSampling;
  loss.level = LossLevel::kSequence;
  const Corrected corrected =
      CorrectBad(loss, InputRole::kOld, NonFinitePolicy::kNeutralize);
  EXPECT_NEAR(corrected.sums().loss.total, -9 * std::exp(0.5), 1e-5);
  EXPECT_NEAR(corrected.gradient[1], -3 * std::exp(0.5), 1e-5);
}

TEST_P(LossNonFinite, NeutralizeHasNoPenalty) {
  LossSpec loss = kSampling;
  loss.kl = {.estimator = KlEstimator::kK3, .coefficient = 1};
  const Corrected corrected =
      CorrectBad(loss, InputRole::kRef, NonFinitePolicy::kNeutralize);
  EXPECT_EQ(corrected.sums().loss.kl_tokens, 3);
  EXPECT_NEAR(corrected.sums().loss.kl, std::exp(-0.5) - 0.5 + std::exp(-1.0),
              1e-6);
  EXPECT_EQ(corrected.gradient[1], -3.0f);
}

COUNTERWEIGHT_ON_EVERY_BACKEND(LossNonFinite);

}  // namespace
}  // namespace counterweight::kernels
