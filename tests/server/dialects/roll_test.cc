// Parts of ROLL's blocks that the goldens do not cover, and their specs.
#include "server/engine/dialects/roll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/log_ratio.h"
#include "server/engine/dialects/other_fields.h"
#include "server/engine/names.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using kernels::Aggregation;
using kernels::BatchCount;
using kernels::Bound;
using kernels::Estimator;
using kernels::Level;
using kernels::LogRatio;
using kernels::LossLevel;
using kernels::LossReduction;
using kernels::RowCount;
using kernels::Surrogate;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Translation Roll(const std::string& json,
                 const RequestFacts& facts = AllTensors()) {
  return TranslateRoll(Block(json), false, facts);
}

Translation Correcting(const std::string& fields) {
  return Roll(Concat(R"({"train_infer_correction": {)", fields, "}}"));
}

TEST(RollTest, EmptyBlockIsTheDefaultObject) {
  const Translation empty = Roll("{}");
  EXPECT_THAT(Fields(empty), IsEmpty());
  EXPECT_THAT(empty.warnings, IsEmpty());
  const Translation object = Roll(
      R"({"importance_sampling": "token", "pg_clip": 0.2,
          "use_pg_clip_range": false, "pg_clip_low": 0.2, "pg_clip_high": 0.2,
          "dual_clip_loss": false, "use_kl_loss": false, "kl_loss_coef": 0.0,
          "rl_loss_coef": 1.0, "loss_agg_mode": "seq-mean-token-mean",
          "entropy_loss_coef": 0.0, "length_loss_weight": false,
          "enable_old_logprobs_recompute": false,
          "train_infer_correction": {
            "is_weight": {"enabled": false, "weight_type": "token",
                          "upper_bound": 1.2, "detach": true},
            "filters": []}})");
  EXPECT_EQ(empty.spec, object.spec);
  EXPECT_EQ(empty.spec.weight.lower, 1.0);
  EXPECT_EQ(empty.spec.weight.upper, 1.0);
  EXPECT_EQ(empty.spec.num_rules, 0);
  const kernels::LossSpec& loss = empty.spec.loss;
  EXPECT_EQ(loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(loss.reduction, (LossReduction{BatchCount::kNonemptyRows,
                                           RowCount::kKeptTokens, 1.0}));
  EXPECT_THAT(kernels::Validate(empty.spec), IsEmpty());
}

google::protobuf::Struct WholeTree(const std::string& json) {
  google::protobuf::Struct tree = Block(json);
  const auto values =
      Block(R"({"0": null, "1": {"lr": 1e-5}, "2": [1], "3": "x"})");
  int i = 0;
  for (const std::string_view field : kRollOtherFields) {
    (*tree.mutable_fields())[std::string(field)] =
        values.fields().at(std::to_string(i++ % 4));
  }
  return tree;
}

TEST(RollTest, TakesAWholeTree) {
  const std::string fields =
      R"({"pg_clip": 0.3, "loss_agg_mode": "token-mean"})";
  const auto tree = WholeTree(fields);
  EXPECT_GT(tree.fields_size(), 100);
  const Translation whole = TranslateRoll(tree, false, AllTensors());
  const Translation part = Roll(fields);
  EXPECT_THAT(Fields(whole), IsEmpty());
  EXPECT_EQ(whole.spec, part.spec);
  EXPECT_EQ(whole.warnings, part.warnings);
  const Translation typo =
      TranslateRoll(WholeTree(R"({"pg_clp": 0.3, "rollout_batch_sise": 8})"),
                    false, AllTensors());
  ASSERT_THAT(Fields(typo), ElementsAre("pg_clp", "rollout_batch_sise"));
  EXPECT_THAT(typo.violations[0].description, HasSubstr("'pg_clip'?"));
  EXPECT_THAT(typo.violations[1].description,
              HasSubstr("'rollout_batch_size'?"));
}

// ROLL reads the variant from actor_train, by a worker of its own.
TEST(RollTest, AWholeTreeHasTheVariantInActorTrain) {
  const auto of = [](const std::string& actor, const std::string& root = "") {
    return Roll(Concat(R"({"actor_train": {)", actor, "}", root, "}"));
  };
  const std::string worker =
      R"("worker_cls": "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker")";
  const auto surrogate = [](const Translation& t) {
    EXPECT_THAT(Fields(t), IsEmpty());
    return t.spec.loss.surrogate;
  };
  EXPECT_EQ(of("").spec, Roll("{}").spec);
  EXPECT_EQ(surrogate(of(worker)), Surrogate::kReinforce);
  const std::string kimi = Concat(worker, R"(, "pg_variant": "kimi15")");
  EXPECT_EQ(surrogate(of(kimi)), Surrogate::kDro);
  EXPECT_EQ(surrogate(of(kimi, R"(, "pg_variant": "kimi15")")),
            Surrogate::kDro);
  EXPECT_EQ(surrogate(of(R"("worker_cls": "mine.MyPGWorker",
                            "pg_variant": "tis")")),
            Surrogate::kCispo);
  const Translation unread = of(R"("pg_variant": "tis", "lr": 1)");
  EXPECT_EQ(unread.spec, Roll("{}").spec);
  EXPECT_THAT(unread.warnings,
              Contains(HasSubstr("actor_train.pg_variant does nothing")));
  EXPECT_THAT(Fields(of(kimi, R"(, "pg_variant": "tis")")),
              ElementsAre("pg_variant"));
  EXPECT_THAT(Fields(of("", R"(, "pg_variant": "tis")")),
              ElementsAre("pg_variant"));
  EXPECT_THAT(Fields(of(Concat(worker, R"(, "pg_variant": "topr")"))),
              ElementsAre("actor_train.pg_variant"));
}

TEST(RollTest, WeightsAreBoundedFromAbove) {
  const Translation plain = Correcting(R"("is_weight": {"enabled": true})");
  EXPECT_EQ(plain.spec.weight.level, Level::kToken);
  EXPECT_EQ(plain.spec.weight.bound, Bound::kTruncate);
  EXPECT_EQ(plain.spec.weight.lower, 0.0);
  EXPECT_EQ(plain.spec.weight.upper, 1.2);
  const Translation row = Correcting(
      R"("is_weight": {"enabled": true, "weight_type": "sequence",
                       "upper_bound": null})");
  EXPECT_EQ(row.spec.weight.level, Level::kSequence);
  EXPECT_EQ(row.spec.weight.upper, kernels::kUnbounded);
  EXPECT_THAT(kernels::Validate(row.spec), IsEmpty());
}

// A turn of kernels is ROLL's segment.
TEST(RollTest, SegmentsAreTurns) {
  const Translation t = Correcting(
      R"("is_weight": {"enabled": true, "weight_type": "segment"},
         "filters": [{"enabled": true, "agg_type": "segment",
                      "diff_enabled": true}])");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_EQ(t.spec.weight.level, Level::kTurn);
  EXPECT_THAT(t.rule_names, ElementsAre("segment_ratio_1", "segment_diff_2"));
  EXPECT_EQ(t.spec.rules[1].aggregation, Aggregation::kTurnMean);
  EXPECT_EQ(t.spec.rules[1].estimator, kernels::Estimator::kDifference);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(RollTest, EachBoundOfAFilterIsARule) {
  const Translation t = Correcting(
      R"("filters": [
          {"enabled": true, "agg_type": "geometric", "diff_enabled": true,
           "ratio_low": 0.5, "diff_high": 0.1},
          {"enabled": false, "agg_type": "segment"},
          {"enabled": true, "agg_type": "sequence", "ratio_low": -1,
           "ratio_high": 3},
          {"enabled": true, "ratio_enabled": false}])");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_THAT(t.rule_names, ElementsAre("geometric_ratio_1", "geometric_diff_2",
                                        "sequence_ratio_3"));
  ASSERT_EQ(t.spec.num_rules, 3);
  EXPECT_EQ(t.spec.rules[0].aggregation, Aggregation::kMean);
  EXPECT_EQ(t.spec.rules[0].lower, LogRatio(0.5));
  EXPECT_EQ(t.spec.rules[0].upper, LogRatio(1.2));
  EXPECT_EQ(t.spec.rules[1].estimator, Estimator::kDifference);
  EXPECT_EQ(t.spec.rules[1].lower, -0.2);
  EXPECT_EQ(t.spec.rules[1].upper, 0.1);
  EXPECT_EQ(t.spec.rules[2].aggregation, Aggregation::kSum);
  EXPECT_EQ(t.spec.rules[2].lower, -kernels::kUnbounded);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
}

TEST(RollTest, VariantsAreSurrogates) {
  const auto loss = [](const std::string& fields) {
    const Translation t = Roll(Concat("{", fields, "}"));
    EXPECT_THAT(Fields(t), IsEmpty()) << fields;
    EXPECT_THAT(kernels::Validate(t.spec), IsEmpty()) << fields;
    return t.spec.loss;
  };
  EXPECT_EQ(loss(R"("pg_variant": "vanilla", "importance_sampling": "seq")")
                .surrogate,
            Surrogate::kReinforce);
  EXPECT_EQ(loss(R"("pg_variant": "kimi15", "kimi15_tau": 0.3)").beta, 0.3);
  const auto tis = loss(R"("pg_variant": "tis", "tis_upper_bound": 0.75)");
  EXPECT_EQ(tis.surrogate, Surrogate::kCispo);
  EXPECT_EQ(tis.clip_low, 1.0);
  EXPECT_EQ(tis.clip_high, -0.25);
  EXPECT_EQ(loss(R"("pg_variant": "cispo")").clip_low, 0.1);
  const auto ppo =
      loss(R"("pg_clip": 0.3, "use_pg_clip_range": true, "pg_clip_low": 0.1,
              "dual_clip_loss": true, "importance_sampling": "seq")");
  EXPECT_EQ(ppo.clip_low, 0.1);
  EXPECT_EQ(ppo.clip_high, 0.2);
  EXPECT_EQ(ppo.dual_clip, 1.6);
  EXPECT_EQ(ppo.level, LossLevel::kSequence);
  EXPECT_EQ(ppo.over, kernels::TokenSet::kKept);
}

TEST(RollTest, VariantsHaveRatiosOfTokens) {
  for (const std::string variant : {"ppo", "tis", "cispo", "kimi15"}) {
    const Translation t = Roll(Concat(R"({"pg_variant": ")", variant,
                                      R"(", "importance_sampling": "seq"})"));
    EXPECT_EQ(t.spec.loss.level, LossLevel::kToken) << variant;
    EXPECT_THAT(t.warnings,
                Contains(HasSubstr("importance_sampling does nothing")));
  }
  EXPECT_THAT(Roll(R"({"importance_sampling": "seq"})").warnings,
              testing::Not(Contains(HasSubstr("importance_sampling"))));
}

TEST(RollTest, DivisorsFollowTheMode) {
  const auto of = [](const std::string& mode) {
    return Roll(Concat(R"({"rl_loss_coef": 0.5, "use_kl_loss": true,
                           "kl_loss_coef": 3, "loss_agg_mode": ")",
                       mode, R"("})"))
        .spec.loss;
  };
  EXPECT_EQ(of("token-mean").reduction,
            (LossReduction{BatchCount::kTokens, RowCount::kOne, 0.5}));
  EXPECT_EQ(of("seq-mean-token-sum").reduction,
            (LossReduction{BatchCount::kNonemptyRows, RowCount::kOne, 0.5}));
  // The padded width is 4.
  EXPECT_EQ(of("seq-mean-token-sum-norm").reduction,
            (LossReduction{BatchCount::kOne, RowCount::kOne, 0.125}));
  EXPECT_EQ(of("seq-mean-token-sum-norm").kl.reduction,
            (LossReduction{BatchCount::kOne, RowCount::kOne, 0.25}));
  EXPECT_EQ(of("token-mean").kl.coefficient, 1.5);
}

// The answer has the sum of losses times the factor alone.
TEST(RollTest, AFactorOfZeroHidesThePolicysLoss) {
  EXPECT_THAT(Roll(R"({"rl_loss_coef": 0})").warnings,
              ElementsAre(HasSubstr("lack pg_loss and weighted_pg_loss")));
  RequestFacts facts = AllTensors();
  facts.wants_loss = false;
  EXPECT_THAT(Roll(R"({"rl_loss_coef": 0})", facts).warnings, IsEmpty());
}

// Its sum has no mask: tokens that filters rejected stay in the loss.
TEST(RollTest, TokenMeanKeepsRejectedTokens) {
  const Translation t = Roll(R"({"loss_agg_mode": "token-mean",
               "train_infer_correction": {"filters": [{"enabled": true}]}})");
  EXPECT_THAT(Fields(t), IsEmpty());
  EXPECT_TRUE(t.spec.loss.counts_dropped);
  EXPECT_THAT(kernels::Validate(t.spec), IsEmpty());
  EXPECT_FALSE(Roll("{}").spec.loss.counts_dropped);
}

TEST(RollTest, TensorsFollowTheBlock) {
  RequestFacts facts = AllTensors();
  facts.has_rollout_log_probs = false;
  EXPECT_THAT(Fields(Roll("{}", facts)), IsEmpty());
  EXPECT_EQ(Roll("{}", facts).spec.weight.level, Level::kNone);
  facts.wants_loss = false;
  EXPECT_FALSE(Roll("{}", facts).token_metrics);
  EXPECT_THAT(Fields(Roll(R"({"train_infer_correction":
                              {"is_weight": {"enabled": true}}})",
                          facts)),
              ElementsAre("tensors[ROLLOUT_LOG_PROBS]"));
  facts = AllTensors();
  facts.has_ref_log_probs = false;
  EXPECT_THAT(Fields(Roll(R"({"use_kl_loss": true})", facts)),
              ElementsAre("tensors[REF_LOG_PROBS]"));
  EXPECT_THAT(Roll(R"({"enable_old_logprobs_recompute": true})").warnings,
              Contains(HasSubstr("changes no number")));
}

TEST(RollTest, Refusals) {
  constexpr Refusal kRefusals[] = {
      {R"({"clip": 0.2})", "clip"},
      {R"({"loss_agg_mode": "batch-mean"})", "loss_agg_mode"},
      {R"({"pg_variant": "topr"})", "pg_variant"},
      {R"({"pg_variant": "dppo"})", "pg_variant"},
      {R"({"length_loss_weight": true})", "length_loss_weight"},
      {R"({"ratio_type": "segment"})", "ratio_type"},
      {R"({"difficulty_loss_weight": true})", "difficulty_loss_weight"},
      {R"({"entropy_loss_coef": 0.1})", "entropy_loss_coef"},
      {R"({"pg_variant": "cispo", "cispo_use_unified_mask": true})",
       "cispo_use_unified_mask"},
      {R"({"pg_variant": "tis", "tis_lower_bound": 1.5})", "tis_lower_bound"},
      {R"({"pg_variant": "tis", "tis_lower_bound": 0.9,
           "tis_upper_bound": 0.8})",
       "tis_lower_bound"},
      {R"({"pg_clip": 0, "dual_clip_loss": true})", "pg_clip"},
      {R"({"importance_sampling": "sequence"})", "importance_sampling"},
      {R"({"train_infer_correction": {"filters": [{"enabled": true,
           "ratio_low": 2}]}})",
       "train_infer_correction.filters[0].ratio_low"},
      {R"({"train_infer_correction": {"filters": [{"enabled": true,
           "low": 2}]}})",
       "train_infer_correction.filters[0].low"},
      {R"({"train_infer_correction": {"filters": [3]}})",
       "train_infer_correction.filters[0]"},
      {R"({"train_infer_correction": {"filters": {}}})",
       "train_infer_correction.filters"},
  };
  for (const Refusal& refusal : kRefusals) {
    EXPECT_THAT(Fields(Roll(refusal.json)), ElementsAre(refusal.field))
        << refusal.json;
  }
  std::string many;
  for (int i = 0; i < 16; ++i) {
    many += Concat(i == 0 ? "" : ", ", R"({"enabled": true})");
  }
  EXPECT_THAT(Fields(Correcting(Concat(R"("filters": [)", many, "]"))),
              ElementsAre("train_infer_correction.filters"));
}

}  // namespace
}  // namespace counterweight::server
