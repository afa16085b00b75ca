// Parts of prime-rl's blocks that the goldens do not cover, and their specs.
#include "server/engine/dialects/prime_rl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "server/engine/dialects/prime_rl_metrics.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/token_metrics.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::Condition;
using kernels::Estimator;
using kernels::InputRole;
using kernels::KlEstimator;
using kernels::LossReduction;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Translation PrimeRl(const std::string& json,
                    const RequestFacts& facts = AllTensors()) {
  return TranslatePrimeRl(Block(json), false, facts);
}

TEST(PrimeRlTest, EmptyBlockIsTheDefaultObject) {
  const Translation empty = PrimeRl("{}");
  EXPECT_THAT(Fields(empty), IsEmpty());
  EXPECT_THAT(empty.warnings, ElementsAre(HasSubstr("old_log_probs was sent")));
  const Translation object =
      PrimeRl(R"({"type": "default", "dppo_mask_low": 0.2,
                  "dppo_mask_high": 0.2, "adv_tau": 1.0, "kl_tau": 0.001})");
  EXPECT_EQ(empty.spec, object.spec);
  const kernels::LossSpec& loss = empty.spec.loss;
  EXPECT_EQ(loss.surrogate, Surrogate::kImportanceSampling);
  EXPECT_FALSE(loss.applies_weight);
  EXPECT_EQ(loss.reduction,
            (LossReduction{BatchCount::kTokens, RowCount::kOne, 1.0}));
  EXPECT_EQ(loss.kl.estimator, KlEstimator::kK2);
  EXPECT_EQ(loss.kl.source, RatioSource::kCurrentRollout);
  EXPECT_EQ(loss.kl.coefficient, 0.002);
  EXPECT_EQ(loss.kl.over, kernels::TokenSet::kOriginal);
  EXPECT_THAT(kernels::Validate(empty.spec), IsEmpty());
}

TEST(PrimeRlTest, TheBoundFollowsTheSignOfTheAdvantage) {
  const Translation t =
      PrimeRl(R"({"dppo_mask_low": 0.1, "dppo_mask_high": 0.3})");
  EXPECT_THAT(t.rule_names, ElementsAre("dppo_mask_high", "dppo_mask_low"));
  ASSERT_EQ(t.spec.num_rules, 2);
  const kernels::RejectionRule& high = t.spec.rules[0];
  EXPECT_EQ(high.condition, Condition::kPositiveAdvantage);
  EXPECT_EQ(high.upper, 0.3);
  EXPECT_EQ(high.lower, -kernels::kUnbounded);
  const kernels::RejectionRule& low = t.spec.rules[1];
  EXPECT_EQ(low.condition, Condition::kNonPositiveAdvantage);
  EXPECT_EQ(low.lower, -0.1);
  EXPECT_EQ(low.upper, kernels::kUnbounded);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(t.spec.rules[r].estimator, Estimator::kDifference);
    EXPECT_EQ(t.spec.rules[r].source, RatioSource::kCurrentRollout);
  }
}

TEST(PrimeRlTest, IpoHasOneBoundForBothSigns) {
  const Translation t = PrimeRl(R"({"type": "ipo", "ipo_threshold": 0.25})");
  EXPECT_THAT(Fields(t), IsEmpty());
  ASSERT_EQ(t.spec.num_rules, 1);
  EXPECT_EQ(t.spec.rules[0].condition, Condition::kAlways);
  EXPECT_EQ(t.spec.rules[0].lower, -0.25);
  EXPECT_EQ(t.spec.rules[0].upper, 0.25);
  // Its mask needs no advantages.
  RequestFacts facts = AllTensors();
  facts.has_advantages = facts.wants_loss = false;
  EXPECT_THAT(Fields(PrimeRl(R"({"type": "ipo"})", facts)), IsEmpty());
  EXPECT_THAT(Fields(PrimeRl("{}", facts)), ElementsAre("tensors[ADVANTAGES]"));
}

TEST(PrimeRlTest, TheScaleDividesBothTerms) {
  const Translation t =
      PrimeRl(R"({"rl_scale": 8, "adv_tau": 2, "kl_tau": 0.5})");
  EXPECT_EQ(t.spec.loss.reduction,
            (LossReduction{BatchCount::kOne, RowCount::kOne, 0.25}));
  EXPECT_EQ(t.spec.loss.kl.reduction,
            (LossReduction{BatchCount::kOne, RowCount::kOne, 0.125}));
  EXPECT_EQ(t.spec.loss.kl.coefficient, 1.0);
  EXPECT_THAT(t.counts_use.given_count, HasSubstr("rl_scale"));
  EXPECT_EQ(PrimeRl(R"({"kl_tau": 0})").spec.loss.kl.estimator,
            KlEstimator::kNone);
  EXPECT_THAT(PrimeRl(R"({"ref_kl_scale": 8})").warnings,
              Contains(HasSubstr("ref_kl_scale does nothing")));
}

TEST(PrimeRlTest, RefKlHasConstantsAndAdvantagesOfItsOwn) {
  RequestFacts facts = AllTensors();
  facts.has_advantages = false;
  const Translation t =
      PrimeRl(R"({"type": "ref_kl", "ref_kl_scale": 8, "rl_scale": 4})", facts);
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.warnings, Contains(HasSubstr("rl_scale does nothing")));
  ASSERT_EQ(t.derived.differences.size(), 1u);
  EXPECT_EQ(t.derived.differences[0].role, InputRole::kAdvantages);
  EXPECT_EQ(t.derived.differences[0].minuend, InputRole::kRef);
  EXPECT_EQ(t.derived.differences[0].subtrahend, InputRole::kCurrent);
  ASSERT_EQ(t.spec.num_rules, 1);
  EXPECT_EQ(t.spec.rules[0].condition, Condition::kAlways);
  EXPECT_EQ(t.spec.rules[0].lower, -0.2);
  EXPECT_EQ(t.spec.rules[0].upper, kernels::kUnbounded);
  EXPECT_EQ(t.spec.loss.reduction,
            (LossReduction{BatchCount::kOne, RowCount::kOne, 0.125}));
  EXPECT_EQ(t.spec.loss.kl.coefficient, 0.002);
  EXPECT_THAT(t.counts_use.given_count, HasSubstr("ref_kl_scale"));
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
  // Other types make none.
  EXPECT_TRUE(PrimeRl("{}").derived.empty());
}

TEST(PrimeRlTest, Refusals) {
  constexpr Refusal kRefusals[] = {
      {R"({"dppo_mask": 0.2})", "dppo_mask"},
      {R"({"type": "dppo"})", "type"},
      {R"({"type": "custom"})", "type"},
      {R"({"dppo_mask_low": -0.1})", "dppo_mask_low"},
      {R"({"dppo_mask_high": "0.1"})", "dppo_mask_high"},
      {R"({"adv_tau": -1})", "adv_tau"},
      {R"({"kl_tau": -0.001})", "kl_tau"},
      {R"({"ipo_threshold": 0.1})", "ipo_threshold"},
      {R"({"type": "ipo", "dppo_mask_low": 0.1})", "dppo_mask_low"},
      {R"({"type": "ipo", "ipo_threshold": -0.1})", "ipo_threshold"},
      {R"({"rl_scale": 0})", "rl_scale"},
      {R"({"type": "ref_kl", "ref_kl_scale": 0})", "ref_kl_scale"},
      {R"({"type": "ref_kl", "adv_tau": 1})", "adv_tau"},
      {R"({"type": "ref_kl", "kl_tau": 0.001})", "kl_tau"},
      {R"({"type": "ref_kl", "dppo_mask_low": 0.2})", "dppo_mask_low"},
  };
  for (const Refusal& refusal : kRefusals) {
    EXPECT_THAT(Fields(PrimeRl(refusal.json)), ElementsAre(refusal.field))
        << refusal.json;
  }
  RequestFacts facts = AllTensors();
  facts.has_ref_log_probs = false;
  EXPECT_THAT(Fields(PrimeRl(R"({"type": "ref_kl"})", facts)),
              ElementsAre("tensors[REF_LOG_PROBS]"));
  facts.has_rollout_log_probs = false;
  EXPECT_THAT(Fields(PrimeRl("{}", facts)),
              ElementsAre("tensors[ROLLOUT_LOG_PROBS]"));
}

// Where no token is lost the statistics over rows are known.
TEST(PrimeRlTest, RowsWithoutALostTokenAreZero) {
  kernels::BatchSums sums{};
  sums.num_sequences = 3;
  sums.nonempty_sequences = 2;
  sums.tokens = sums.kept_tokens = 4;
  sums.drift.k3 = 1.0;
  sums.drift.log_ratio_range = {-0.5, 0.25};
  MetricMap metrics;
  AddPrimeRlMetrics(PrimeRlType::kDefault, sums, &metrics);
  EXPECT_EQ(metrics.at("mismatch_kl/all/mean"), 0.25);
  EXPECT_DOUBLE_EQ(metrics.at("mismatch_kl/all/max"), std::expm1(-0.5) + 0.5);
  EXPECT_FALSE(metrics.contains("mismatch_kl/all/min"));
  EXPECT_EQ(metrics.at("is_masked/mean"), 0.0);
  EXPECT_EQ(metrics.at("masked_advantage_negative/std"), 0.0);
  EXPECT_FALSE(metrics.contains("unmasked_mismatch_kl/mean"));
  sums.kept_tokens = 3;
  metrics.clear();
  AddPrimeRlMetrics(PrimeRlType::kDefault, sums, &metrics);
  EXPECT_FALSE(metrics.contains("is_masked/mean"));
}

// Rows of two, one and no tokens, and one of a token that is kept.
TEST(PrimeRlTest, StatisticsOverRows) {
  constexpr float kRollout[] = {-1.0f, -1.0f, -2.0f, -1.0f};
  constexpr float kCurrent[] = {-1.0f, -0.5f, -2.5f, -1.0f};
  constexpr float kAdvantages[] = {-1.0f, 2.0f, 0.0f, 1.0f};
  constexpr uint8_t kMask[] = {1, 1, 1, 1};
  constexpr uint8_t kKeep[] = {1, 0, 0, 1};
  constexpr float kWeights[] = {1.0f, 1.0f, 1.0f, 1.0f};
  constexpr int64_t kOffsets[] = {0, 2, 3, 3, 4};
  const Translation t = PrimeRl("{}");
  kernels::Batch batch;
  batch.num_sequences = 4;
  batch.offsets = kOffsets;
  batch.response_mask = kMask;
  const auto set = [&](InputRole role, const float* data) {
    batch.tensors[static_cast<int>(role)].data = data;
  };
  set(InputRole::kRollout, kRollout);
  set(InputRole::kCurrent, kCurrent);
  set(InputRole::kAdvantages, kAdvantages);
  kernels::BatchSums sums{};
  sums.tokens = 4;
  MetricMap metrics;
  t.token_metrics(CorrectedTokens(batch, t.spec, kKeep, kWeights), sums,
                  &metrics);
  // 1/2, 1, 0, 0.
  EXPECT_EQ(metrics.at("is_masked/mean"), 0.375);
  EXPECT_EQ(metrics.at("is_masked/median"), 0.0);
  EXPECT_DOUBLE_EQ(metrics.at("is_masked/std"), std::sqrt(0.6875 / 3.0));
  EXPECT_EQ(metrics.at("is_masked/max"), 1.0);
  // The lost token of advantage 0 is of neither side.
  EXPECT_EQ(metrics.at("is_masked_high/max"), 0.5);
  EXPECT_EQ(metrics.at("is_masked_low/max"), 0.0);
  EXPECT_EQ(metrics.at("masked_advantage_positive/max"), 1.0);
  EXPECT_EQ(metrics.at("masked_advantage_positive/mean"), 0.25);
  EXPECT_EQ(metrics.at("masked_advantage_negative/max"), 0.0);
  const double up = std::expm1(0.5) - 0.5;
  const double down = std::expm1(-0.5) + 0.5;
  EXPECT_DOUBLE_EQ(metrics.at("masked_mismatch_kl/mean"), (up + down) / 4.0);
  EXPECT_EQ(metrics.at("unmasked_mismatch_kl/max"), 0.0);
  EXPECT_EQ(metrics.at("mismatch_kl/all/median"), 0.0);
  EXPECT_DOUBLE_EQ(metrics.at("mismatch_kl/all/max"), up);
  // 4 tokens, and 7 numbers of 4 rows.
  EXPECT_EQ(t.token_metric_memory.Bytes(4, 4), 8 * (4 + 28));
}

TEST(PrimeRlTest, IpoHasNoMetricsBySign) {
  const Translation t = PrimeRl(R"({"type": "ipo"})");
  const MetricMap metrics = TokenMetricsOf(t, {RowOf({-1.0f})}, {1}, {1.0f});
  EXPECT_EQ(metrics.at("is_masked/mean"), 0.0);
  // One row has no deviation.
  EXPECT_TRUE(std::isnan(metrics.at("is_masked/std")));
  EXPECT_FALSE(metrics.contains("is_masked_low/mean"));
  EXPECT_FALSE(metrics.contains("masked_advantage_positive/mean"));
}

// Empty rows have no part in its statistics, from sums too.
TEST(PrimeRlTest, RefKlSkipsEmptyRows) {
  const Translation t = PrimeRl(R"({"type": "ref_kl"})");
  kernels::Row empty = RowOf({-1.0f});
  empty.mask = {0};
  kernels::Row first = RowOf({-1.0f}), second = RowOf({-1.0f});
  first[InputRole::kAdvantages] = {0.5f};
  second[InputRole::kAdvantages] = {-1.5f};
  const MetricMap metrics =
      TokenMetricsOf(t, {first, empty, second}, {1, 0, 0}, {1.0f, 0.0f, 1.0f});
  EXPECT_EQ(metrics.at("ref_kl/mean"), -0.5);
  EXPECT_EQ(metrics.at("ref_kl/max"), 0.5);
  EXPECT_EQ(metrics.at("ref_kl/is_masked/mean"), 0.5);
  EXPECT_EQ(metrics.at("ref_kl/unmasked_mismatch_kl/mean"), 0.0);
  EXPECT_FALSE(metrics.contains("is_masked/mean"));
  EXPECT_TRUE(metrics.contains("mismatch_kl/all/mean"));
  kernels::BatchSums sums{};
  sums.num_sequences = 3;
  sums.nonempty_sequences = 1;
  sums.tokens = sums.kept_tokens = 4;
  MetricMap of_sums;
  AddPrimeRlMetrics(PrimeRlType::kRefKl, sums, &of_sums);
  EXPECT_EQ(of_sums.at("ref_kl/is_masked/mean"), 0.0);
  EXPECT_TRUE(std::isnan(of_sums.at("ref_kl/is_masked/std")));
  EXPECT_FALSE(of_sums.contains("masked_advantage_positive/mean"));
  sums = {};
  sums.num_sequences = 3;
  of_sums.clear();
  AddPrimeRlMetrics(PrimeRlType::kRefKl, sums, &of_sums);
  EXPECT_FALSE(of_sums.contains("ref_kl/is_masked/mean"));
}

}  // namespace
}  // namespace counterweight::server
