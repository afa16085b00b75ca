#include "server/engine/dialects/trl_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/trl.h"
#include "tests/server/dialects/blocks.h"

namespace counterweight::server {
namespace {

using kernels::BatchCount;
using kernels::kUnbounded;
using kernels::LossLevel;
using kernels::LossReduction;
using kernels::LossSpec;
using kernels::RatioSource;
using kernels::RowCount;
using kernels::Surrogate;
using kernels::TokenSet;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kUncorrected =
    R"("vllm_importance_sampling_correction": false)";

RequestFacts LossWanted() {
  RequestFacts facts;
  facts.has_rollout_log_probs = true;
  facts.has_old_log_probs = true;
  facts.has_current_log_probs = true;
  facts.has_ref_log_probs = true;
  facts.has_advantages = true;
  facts.wants_loss = true;
  facts.num_sequences = 2;
  facts.padded_length = 8;
  facts.asked = {.release = {1, 9, 0}, .is_named = true};
  return facts;
}

// Translates `fields` of a block without a correction.
Translation TranslateTrlLoss(const std::string& fields,
                             const RequestFacts& facts = LossWanted()) {
  return TranslateTrl(
      Block(Concat("{", kUncorrected, fields.empty() ? "" : ", ", fields, "}")),
      false, facts);
}

// The same; expects no violations.
LossSpec LossOf(const std::string& fields,
                const RequestFacts& facts = LossWanted()) {
  const Translation translation = TranslateTrlLoss(fields, facts);
  for (const Violation& violation : translation.violations) {
    ADD_FAILURE() << violation.field << ": " << violation.description;
  }
  EXPECT_THAT(kernels::Validate(translation.spec), IsEmpty()) << fields;
  return translation.spec.loss;
}

std::string Type(std::string_view name) {
  return Concat(R"("loss_type": ")", name, R"(")");
}

void ExpectReduction(const LossReduction& actual, BatchCount count,
                     RowCount row, double scale) {
  EXPECT_EQ(actual.count, count);
  EXPECT_EQ(actual.row, row);
  EXPECT_DOUBLE_EQ(actual.scale, scale);
}

TEST(TrlLossTest, EmptyBlockIsDapo) {
  const LossSpec loss = LossOf("");
  EXPECT_EQ(loss.surrogate, Surrogate::kPpoClip);
  EXPECT_EQ(loss.level, LossLevel::kToken);
  EXPECT_EQ(loss.source, RatioSource::kCurrentOld);
  EXPECT_EQ(loss.clip_low, 0.2);
  EXPECT_EQ(loss.clip_high, 0.2);
  EXPECT_EQ(loss.ratio_cap, kUnbounded);
  EXPECT_EQ(loss.dual_clip, kUnbounded);
  EXPECT_EQ(loss.over, TokenSet::kOriginal);
  EXPECT_EQ(loss.kl.estimator, kernels::KlEstimator::kNone);
  EXPECT_TRUE(loss.allow_double_correction);
  EXPECT_FALSE(loss.counts_padding);
  EXPECT_FALSE(loss.measures_padding);
  ExpectReduction(loss.reduction, BatchCount::kTokens, RowCount::kOne, 1.0);
}

TEST(TrlLossTest, IsLeftAloneWhereNoneIsWanted) {
  RequestFacts facts = LossWanted();
  facts.wants_loss = false;
  EXPECT_EQ(LossOf(Type("grpo"), facts).surrogate, Surrogate::kNone);
  // Without a loss, numbers of the block are not checked, but names are.
  EXPECT_EQ(LossOf(R"("epsilon": -1)", facts).surrogate, Surrogate::kNone);
  EXPECT_EQ(TranslateTrlLoss(Type("ppo"), facts).violations.size(), 1u);
}

TEST(TrlLossTest, EpsilonHighIsEpsilonUnlessGiven) {
  EXPECT_EQ(LossOf(R"("epsilon": 0.1)").clip_high, 0.1);
  EXPECT_EQ(LossOf(R"("epsilon": 0.1, "epsilon_high": null)").clip_high, 0.1);
  EXPECT_EQ(LossOf(R"("epsilon": 0.1, "epsilon_high": 0)").clip_high, 0.0);
  EXPECT_EQ(LossOf(R"("delta": 1.5)").ratio_cap, 1.5);
}

TEST(TrlLossTest, CispoCapsTheRatioItself) {
  const LossSpec loss = LossOf(Concat(Type("cispo"), R"(, "epsilon_high": 5)"));
  EXPECT_EQ(loss.surrogate, Surrogate::kCispo);
  EXPECT_EQ(loss.clip_low, kUnbounded);
  EXPECT_DOUBLE_EQ(loss.clip_high, 4.0);
  EXPECT_DOUBLE_EQ(LossOf(Type("cispo")).clip_high, -0.8);
}

TEST(TrlLossTest, SapoAndVespoTakeTheirShapes) {
  const LossSpec sapo = LossOf(
      Concat(Type("sapo"),
             R"(, "sapo_temperature_pos": 2, "sapo_temperature_neg": 3)"));
  EXPECT_EQ(sapo.surrogate, Surrogate::kSapo);
  EXPECT_EQ(sapo.tau_positive, 2.0);
  EXPECT_EQ(sapo.tau_negative, 3.0);
  const LossSpec vespo =
      LossOf(Concat(Type("vespo"), R"(, "vespo_k_pos": 4, "vespo_lambda_pos": 5,
                                 "vespo_k_neg": 6, "vespo_lambda_neg": 7)"));
  EXPECT_EQ(vespo.surrogate, Surrogate::kVespo);
  EXPECT_EQ(vespo.k_positive, 4.0);
  EXPECT_EQ(vespo.lambda_positive, 5.0);
  EXPECT_EQ(vespo.k_negative, 6.0);
  EXPECT_EQ(vespo.lambda_negative, 7.0);
  EXPECT_EQ(vespo.padded_length, 8);
  EXPECT_TRUE(vespo.measures_padding);
}

TEST(TrlLossTest, ReductionsAreThoseOfTheLossType) {
  const std::string counts =
      R"(, "gradient_accumulation_steps": 4, "num_processes": 2,
           "max_completion_length": 16)";
  const auto reduction = [&](std::string_view type, std::string_view more) {
    return LossOf(Concat(Type(type), counts, more)).reduction;
  };
  for (const char* type : {"grpo", "sapo"}) {
    ExpectReduction(reduction(type, ""), BatchCount::kRows, RowCount::kTokens,
                    0.25);
  }
  ExpectReduction(reduction("bnpo", ""), BatchCount::kTokens, RowCount::kOne,
                  0.25);
  ExpectReduction(reduction("dr_grpo", ""), BatchCount::kRows, RowCount::kOne,
                  1.0 / 64.0);
  for (const char* type : {"dapo", "cispo", "vespo"}) {
    ExpectReduction(reduction(type, ""), BatchCount::kTokens, RowCount::kOne,
                    2.0);
    ExpectReduction(reduction(type, R"(, "num_items_in_batch": 10)"),
                    BatchCount::kOne, RowCount::kOne, 0.2);
    ExpectReduction(reduction(type, R"(, "num_items_in_batch": 0)"),
                    BatchCount::kOne, RowCount::kOne, 2.0);
  }
}

TEST(TrlLossTest, LuspoIncludesPaddingWhereItsLossHasTokens) {
  const std::string sequence = R"("importance_sampling_level": "sequence", )";
  const LossSpec rows = LossOf(sequence + Type("luspo"));
  EXPECT_EQ(rows.level, LossLevel::kSequence);
  EXPECT_FALSE(rows.counts_padding);
  ExpectReduction(rows.reduction, BatchCount::kRows, RowCount::kOne, 1.0);

  for (const std::string& fields :
       {Type("luspo"), sequence + Type("luspo") + R"(, "beta": 0.1)"}) {
    const LossSpec tokens = LossOf(fields);
    EXPECT_TRUE(tokens.counts_padding) << fields;
    EXPECT_EQ(tokens.padded_length, 8);
    ExpectReduction(tokens.reduction, BatchCount::kRows, RowCount::kPerToken,
                    0.125);
  }
  // A weight makes a row's loss per token only if there is one weight per
  // token.
  for (const char* mode : {"sequence_mask", "token_mask"}) {
    const Translation t = TranslateTrl(
        Block(Concat("{", sequence, Type("luspo"),
                     R"(, "vllm_importance_sampling_mode": ")", mode, R"("})")),
        false, LossWanted());
    EXPECT_EQ(t.spec.loss.counts_padding, mode == std::string("token_mask"));
  }
}

TEST(TrlLossTest, CurrentStandsForMissingOld) {
  RequestFacts facts = LossWanted();
  facts.has_old_log_probs = false;
  const LossSpec loss = LossOf("", facts);
  EXPECT_EQ(loss.source, RatioSource::kCurrentSelf);
  EXPECT_EQ(loss.metrics_source, RatioSource::kCurrentSelf);
}

TEST(TrlLossTest, KlIsK3OfEveryToken) {
  const LossSpec loss = LossOf(
      Concat(Type("grpo"), R"(, "beta": 0.1, "use_bias_correction_kl": true,
                                "gradient_accumulation_steps": 2)"));
  EXPECT_EQ(loss.kl.estimator, kernels::KlEstimator::kK3);
  EXPECT_EQ(loss.kl.coefficient, 0.1);
  EXPECT_TRUE(loss.kl.importance_weighted);
  EXPECT_EQ(loss.kl.token_clamp, kUnbounded);
  EXPECT_EQ(loss.kl.over, TokenSet::kOriginal);
  ExpectReduction(loss.kl.reduction, BatchCount::kRows, RowCount::kTokens, 0.5);
  EXPECT_FALSE(LossOf(R"("beta": 0.1)").kl.importance_weighted);
}

TEST(TrlLossTest, PaddedWidthOfOneCountsMaskedRows) {
  RequestFacts facts = LossWanted();
  facts.padded_length = 1;
  EXPECT_TRUE(LossOf("", facts).measures_padding);
}

TEST(TrlLossTest, NumbersThatTurnTheLossAreRefusedWhereRead) {
  const struct {
    std::string fields;
    const char* blamed;
  } kRefused[] = {
      {R"("epsilon": -0.1)", "epsilon"},
      {R"("epsilon_high": -0.1)", "epsilon_high"},
      {R"("delta": 0)", "delta"},
      {R"("beta": -0.1)", "beta"},
      {R"("epsilon": null)", "epsilon"},
      {R"("max_completion_length": null, )" + Type("dr_grpo"),
       "max_completion_length"},
      {R"("gradient_accumulation_steps": 0)", "gradient_accumulation_steps"},
      {R"("num_processes": 1.5)", "num_processes"},
      {R"("num_items_in_batch": -1)", "num_items_in_batch"},
      {R"("epsilon": -0.1, )" + Type("cispo"), "epsilon"},
      {R"("epsilon_high": -0.1, )" + Type("cispo"), "epsilon_high"},
      {R"("sapo_temperature_neg": 0, )" + Type("sapo"), "sapo_temperature_neg"},
      {R"("use_bias_correction_kl": true, "beta": 0.1,
          "importance_sampling_level": "sequence", )" +
           Type("vespo"),
       "importance_sampling_level"},
  };
  for (const auto& row : kRefused) {
    const Translation t = TranslateTrlLoss(row.fields);
    ASSERT_EQ(t.violations.size(), 1u) << row.fields;
    EXPECT_EQ(t.violations[0].field,
              std::string("method.dialect.block.") + row.blamed);
  }
  EXPECT_EQ(LossOf(R"("epsilon": -1, "delta": -1, "sapo_temperature_pos": 1,
                      "max_completion_length": null, )" +
                   Type("vespo"))
                .surrogate,
            Surrogate::kVespo);
}

TEST(TrlLossTest, WarnsOfLevelsAsTrl) {
  const auto warnings = [](std::string_view level, std::string_view type) {
    return TranslateTrlLoss(Concat(R"("importance_sampling_level": ")", level,
                                   R"(", )", Type(type)))
        .warnings;
  };
  for (const char* type : {"bnpo", "dr_grpo", "dapo", "cispo", "vespo"}) {
    EXPECT_THAT(warnings("sequence", type), ElementsAre(HasSubstr(type)));
    EXPECT_THAT(warnings("token", type), IsEmpty());
  }
  EXPECT_THAT(warnings("token", "luspo"), ElementsAre(HasSubstr("padding")));
  for (const char* type : {"grpo", "sapo", "luspo"}) {
    EXPECT_THAT(warnings("sequence", type), IsEmpty());
  }
}

TEST(TrlLossTest, EverySpecIsValid) {
  for (const char* type :
       {"grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"}) {
    for (const char* level : {"token", "sequence"}) {
      for (const char* mode : {"token_truncate", "token_mask"}) {
        for (const char* beta : {"0", "0.1"}) {
          for (const int64_t width : {1, 8}) {
            RequestFacts facts = LossWanted();
            facts.padded_length = width;
            const Translation t = TranslateTrl(
                Block(Concat("{", Type(type),
                             R"(, "importance_sampling_level": ")", level,
                             R"(", "vllm_importance_sampling_mode": ")", mode,
                             R"(", "off_policy_mask_threshold": 0.5,
                                "delta": 1.5, "beta": )",
                             beta, "}")),
                false, facts);
            EXPECT_THAT(t.violations, IsEmpty());
            EXPECT_THAT(kernels::Validate(t.spec), IsEmpty())
                << type << " " << level << " " << mode << " " << beta;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace counterweight::server
