// Counts and divisors over all ranks of a step.
#include "server/engine/codec_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/server/decoded_answers.h"
#include "tests/server/dialects/blocks.h"

namespace counterweight::server {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// Numbers of sequence s at token t: exact in float32, so that sums are too.
float Advantage(int s, int t) { return static_cast<float>(1 + s + 4 * t); }

// Rows [first, last) of a batch of 4 rows and 4 positions; row i counts its
// first 4 - i; the policies are equal, so ratios are 1. Of these the
// rollout gave the first token of row 0 a ratio of e^2.
v1::CorrectRequest Rows(int first, int last) {
  constexpr int kLength = 4;
  v1::CorrectRequest request;
  v1::PaddedLayout* layout = request.mutable_layout()->mutable_padded();
  layout->set_num_sequences(last - first);
  layout->set_length(kLength);
  std::vector<float> log_probs, rollout, advantages;
  std::string mask;
  for (int s = first; s < last; ++s) {
    for (int t = 0; t < kLength; ++t) {
      log_probs.push_back(-1.0f);
      rollout.push_back(s == 0 && t == 0 ? -3.0f : -1.0f);
      advantages.push_back(Advantage(s, t));
      mask.push_back(t < kLength - s ? 1 : 0);
    }
  }
  AddNumbers(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, rollout, &request);
  AddNumbers(v1::TENSOR_ROLE_OLD_LOG_PROBS, log_probs, &request);
  AddNumbers(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, log_probs, &request);
  AddNumbers(v1::TENSOR_ROLE_ADVANTAGES, advantages, &request);
  AddNumbers(v1::TENSOR_ROLE_REF_LOG_PROBS, rollout, &request);
  AddMask(mask, &request);
  return request;
}

using Setter = std::function<void(v1::CorrectRequest*)>;

// Ranks of rows 0, 1 to 2 and 3 answer with `method` and `counts`; the whole
// batch without counts. Losses and gradients must be equal.
void ExpectRanksAddUp(const Setter& method, const Setter& counts) {
  v1::CorrectRequest whole = Rows(0, 4);
  method(&whole);
  const Answer all = AnswerOf(whole);
  ASSERT_THAT(all.fields(), IsEmpty());
  double loss = 0.0;
  std::vector<float> gradient;
  for (const auto& [first, last] : {std::pair{0, 1}, {1, 3}, {3, 4}}) {
    v1::CorrectRequest request = Rows(first, last);
    method(&request);
    counts(&request);
    const Answer part = AnswerOf(request);
    ASSERT_THAT(part.fields(), IsEmpty());
    loss += part.response.loss();
    for (const float number : part.gradient()) gradient.push_back(number);
  }
  EXPECT_NEAR(loss, all.response.loss(), 1e-12 * std::abs(loss));
  EXPECT_NE(loss, 0.0);
  EXPECT_EQ(gradient, all.gradient());
}

void CountAll(v1::CorrectRequest* request) {
  request->mutable_global_counts()->set_num_tokens(10);
  request->mutable_global_counts()->set_num_sequences(4);
}

Setter Preset(const std::string& name) {
  return [name](v1::CorrectRequest* request) {
    request->mutable_method()->mutable_preset()->set_name(name);
  };
}

Setter SystemBlock(const std::string& system, const std::string& block) {
  return [=](v1::CorrectRequest* request) {
    v1::Dialect* const dialect = request->mutable_method()->mutable_dialect();
    dialect->set_system(system);
    *dialect->mutable_block() = Block(block);
    request->set_compute_loss(true);
    request->add_outputs(v1::TENSOR_ROLE_GRADIENT);
  };
}

v1::PolicyLoss PpoClip(v1::LossAggregation aggregation,
                       v1::LossDenominator denominator) {
  v1::PolicyLoss loss;
  loss.set_surrogate(v1::SURROGATE_PPO_CLIP);
  loss.set_aggregation(aggregation);
  loss.set_denominator(denominator);
  loss.set_clip_low(0.2);
  loss.set_clip_high(0.2);
  return loss;
}

Setter Config(const v1::PolicyLoss& loss) {
  return [loss](v1::CorrectRequest* request) {
    v1::CorrectionConfig* config = request->mutable_method()->mutable_config();
    *config->mutable_policy_loss() = loss;
    // Drops the first token of row 0.
    v1::RejectionRule* const rule = config->add_rules();
    rule->set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
    rule->set_estimator(v1::ESTIMATOR_RATIO);
    rule->set_aggregation(v1::AGGREGATION_TOKEN);
    rule->set_upper(2.0);
    v1::KlPenalty* const kl = config->mutable_kl_penalty();
    kl->set_estimator(v1::KL_ESTIMATOR_K2);
    kl->set_coefficient(0.5);
  };
}

v1::GlobalCounts* CountsOf(v1::CorrectRequest* request) {
  return request->mutable_global_counts();
}

TEST(Counts, RanksOfPresetsAddUp) {
  for (const char* const name :
       {"ppo_clip", "grpo", "gspo", "cispo", "sapo", "luspo", "dppo_tv"}) {
    SCOPED_TRACE(name);
    ExpectRanksAddUp(Preset(name), CountAll);
  }
}

TEST(Counts, RanksOfEveryAggregationAddUp) {
  for (const v1::LossAggregation aggregation :
       {v1::LOSS_AGGREGATION_TOKEN_MEAN,
        v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM,
        v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN,
        v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM}) {
    SCOPED_TRACE(aggregation);
    v1::PolicyLoss loss = PpoClip(aggregation, v1::LOSS_DENOMINATOR_ORIGINAL);
    if (aggregation == v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM) {
      loss.set_norm_length(8.0);
    }
    ExpectRanksAddUp(Config(loss), CountAll);
    loss.set_denominator(v1::LOSS_DENOMINATOR_KEPT);
    ExpectRanksAddUp(Config(loss), [&](v1::CorrectRequest* request) {
      CountsOf(request)->set_num_tokens(10);
      CountsOf(request)->set_num_sequences(4);
      if (aggregation == v1::LOSS_AGGREGATION_TOKEN_MEAN) {
        CountsOf(request)->set_num_kept_tokens(9);
      } else {
        CountsOf(request)->set_num_kept_sequences(4);
      }
    });
  }
}

TEST(Counts, RanksOfDialectsAddUp) {
  const std::pair<const char*, const char*> kBlocks[] = {
      {"verl", R"({"policy_loss": {"loss_mode": "vanilla"}})"},
      {"verl", R"({"policy_loss": {"loss_mode": "gpg",
                   "loss_agg_mode": "seq-mean-token-sum"}})"},
      {"verl", R"({"policy_loss": {"loss_mode": "sapo", "use_kl_loss": true,
                   "loss_agg_mode": "seq-mean-token-mean"}})"},
      {"verl", R"({"policy_loss": {"loss_agg_mode": "seq-mean-token-sum-norm",
                   "loss_scale_factor": 8}})"},
      {"trl", R"({"loss_type": "dapo", "beta": 0.1})"},
      {"trl", R"({"loss_type": "cispo"})"},
      {"skyrl", R"({"loss_reduction": "token_mean"})"},
      {"skyrl", R"({"loss_reduction": "sequence_mean", "use_kl_loss": true})"},
      {"skyrl", R"({"loss_reduction": "seq_mean_token_sum_norm",
                    "max_seq_len": 8})"},
      {"openrlhf", R"({"use_kl_loss": true, "kl_estimator": "k2"})"},
      {"openrlhf", R"({"token_level_loss": false})"},
  };
  for (const auto& [system, block] : kBlocks) {
    SCOPED_TRACE(std::string(system) + " " + block);
    ExpectRanksAddUp(SystemBlock(system, block), CountAll);
  }
}

// A block's own counts and global_counts mean the same.
TEST(Counts, DialectsReadThemAsTheirOwn) {
  const auto loss = [](const char* system, const char* block, bool stated) {
    v1::CorrectRequest request = Rows(0, 4);
    SystemBlock(system, block)(&request);
    if (stated) {
      CountAll(&request);
      CountsOf(&request)->set_num_tokens(40);
      CountsOf(&request)->set_num_ranks(2);
    }
    const Answer answer = AnswerOf(request);
    EXPECT_THAT(answer.fields(), IsEmpty());
    return answer.response.loss();
  };
  EXPECT_DOUBLE_EQ(
      loss("verl", R"({"policy_loss": {"loss_mode": "vanilla"}})", true),
      loss("verl", R"({"policy_loss": {"global_batch_info":
                       {"batch_num_tokens": 40, "dp_size": 2}}})",
           false));
  EXPECT_DOUBLE_EQ(loss("trl", R"({"loss_type": "dapo"})", true),
                   loss("trl", R"({"loss_type": "dapo", "num_processes": 2,
                                   "num_items_in_batch": 40})",
                        false));
  EXPECT_DOUBLE_EQ(
      loss("openrlhf", "{}", true),
      loss("openrlhf", R"({"batch_num_tokens": 40, "dp_size": 2})", false));
}

// Returns the fields of the violations of the whole batch with these counts.
std::vector<std::string> Fields(const Setter& method, const Setter& counts) {
  v1::CorrectRequest request = Rows(0, 4);
  method(&request);
  counts(&request);
  return AnswerOf(request).fields();
}

TEST(Counts, WhatALossNeedsIsNamed) {
  const auto ranks = [](v1::CorrectRequest* request) {
    CountsOf(request)->set_num_ranks(2);
  };
  EXPECT_THAT(Fields(Preset("ppo_clip"), ranks),
              ElementsAre("global_counts.num_tokens"));
  EXPECT_THAT(Fields(Preset("gspo"), ranks),
              ElementsAre("global_counts.num_sequences"));
  const v1::PolicyLoss kept =
      PpoClip(v1::LOSS_AGGREGATION_TOKEN_MEAN, v1::LOSS_DENOMINATOR_KEPT);
  EXPECT_THAT(Fields(Config(kept), CountAll),
              Each("global_counts.num_kept_tokens"));
  const v1::PolicyLoss global =
      PpoClip(v1::LOSS_AGGREGATION_TOKEN_MEAN, v1::LOSS_DENOMINATOR_GLOBAL);
  EXPECT_THAT(Fields(Config(global), [](v1::CorrectRequest*) {}),
              ElementsAre("global_counts"));
  const v1::PolicyLoss norm =
      PpoClip(v1::LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM_NORM,
              v1::LOSS_DENOMINATOR_ORIGINAL);
  EXPECT_THAT(Fields(Config(norm), CountAll),
              ElementsAre("method.config.policy_loss.norm_length"));
  EXPECT_THAT(
      Fields(SystemBlock("verl", R"({"policy_loss":
                  {"loss_agg_mode": "seq-mean-token-sum-norm"}})"),
             CountAll),
      ElementsAre("method.dialect.block.policy_loss.loss_scale_factor"));
}

TEST(Counts, SelectionsStayWithinACallOnlyIfThatIsSaid) {
  for (const char* const name : {"kl_cov", "clip_cov"}) {
    EXPECT_THAT(Fields(Preset(name), CountAll),
                ElementsAre("global_counts.selection_scope"));
    EXPECT_THAT(Fields(Preset(name),
                       [](v1::CorrectRequest* request) {
                         CountAll(request);
                         CountsOf(request)->set_selection_scope(
                             v1::SELECTION_SCOPE_CALL);
                       }),
                IsEmpty());
  }
}

TEST(Counts, NormalizedWeightsOfALossNeedTheirSum) {
  const auto method = [](v1::CorrectRequest* request) {
    v1::CorrectionConfig* config = request->mutable_method()->mutable_config();
    *config->mutable_policy_loss() =
        PpoClip(v1::LOSS_AGGREGATION_TOKEN_MEAN, v1::LOSS_DENOMINATOR_ORIGINAL);
    v1::ImportanceWeight* weight = config->mutable_importance_weight();
    weight->set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
    weight->set_level(v1::LEVEL_TOKEN);
    weight->set_bound(v1::BOUND_TRUNCATE);
    weight->set_upper(3.0);
    weight->set_normalize(true);
  };
  EXPECT_THAT(Fields(method, CountAll),
              ElementsAre("global_counts.weight_sum"));
  // Nine weights of 1 and one of 3.
  ExpectRanksAddUp(method, [](v1::CorrectRequest* request) {
    CountAll(request);
    CountsOf(request)->set_weight_sum(12.0);
  });
}

TEST(Counts, WhatIsNotReadIsRefused) {
  EXPECT_THAT(Fields(Preset("token_tis"), CountAll),
              ElementsAre("global_counts"));
  EXPECT_THAT(Fields(SystemBlock("trl", R"({"loss_type": "grpo"})"), CountAll),
              ElementsAre("global_counts"));
  EXPECT_THAT(Fields(SystemBlock("verl", R"({"policy_loss":
                         {"loss_mode": "geo_mean"}})"),
                     CountAll),
              ElementsAre("global_counts"));
  EXPECT_THAT(
      Fields(SystemBlock("openrlhf", R"({"batch_num_tokens": 40})"), CountAll),
      ElementsAre("global_counts"));
  const auto all = [](v1::CorrectRequest* request) {
    CountAll(request);
    CountsOf(request)->set_num_kept_tokens(9);
    CountsOf(request)->set_num_kept_sequences(4);
    CountsOf(request)->set_selection_scope(v1::SELECTION_SCOPE_CALL);
  };
  EXPECT_THAT(Fields(Preset("ppo_clip"), all),
              UnorderedElementsAre("global_counts.num_kept_tokens",
                                   "global_counts.num_kept_sequences",
                                   "global_counts.selection_scope"));
  EXPECT_THAT(Fields(Config(PpoClip(v1::LOSS_AGGREGATION_TOKEN_SUM,
                                    v1::LOSS_DENOMINATOR_ORIGINAL)),
                     CountAll),
              Each("global_counts"));
}

TEST(Counts, OnesBelowTheBatchsOwnAreRefused) {
  const auto counts = [](int tokens, int sequences) {
    return [=](v1::CorrectRequest* request) {
      CountsOf(request)->set_num_tokens(tokens);
      CountsOf(request)->set_num_sequences(sequences);
    };
  };
  EXPECT_THAT(Fields(Preset("ppo_clip"), counts(9, 3)),
              UnorderedElementsAre("global_counts.num_tokens",
                                   "global_counts.num_sequences"));
  EXPECT_THAT(Fields(Preset("gspo"), counts(0, 0)),
              UnorderedElementsAre("global_counts.num_tokens",
                                   "global_counts.num_sequences"));
  EXPECT_THAT(Fields(Preset("ppo_clip"), counts(-1, 4)),
              ElementsAre("global_counts.num_tokens"));
  const v1::PolicyLoss kept =
      PpoClip(v1::LOSS_AGGREGATION_TOKEN_MEAN, v1::LOSS_DENOMINATOR_KEPT);
  EXPECT_THAT(Fields(Config(kept),
                     [](v1::CorrectRequest* request) {
                       request->set_omit_metrics(true);
                       CountsOf(request)->set_num_kept_tokens(8);
                     }),
              ElementsAre("global_counts.num_kept_tokens"));
}

TEST(Counts, AStepWithoutTokensHasALossOfZero) {
  const Setter methods[] = {
      Preset("ppo_clip"), Preset("gspo"),
      SystemBlock("verl", R"({"policy_loss": {"loss_mode": "vanilla"}})"),
      SystemBlock("openrlhf", "{}")};
  for (const Setter& method : methods) {
    v1::CorrectRequest request = Rows(0, 4);
    request.mutable_tensors()->RemoveLast();
    AddMask(std::string(16, '\0'), &request);
    method(&request);
    CountsOf(&request)->set_num_tokens(0);
    CountsOf(&request)->set_num_sequences(0);
    const Answer answer = AnswerOf(request);
    // verl itself refuses a correction without tokens.
    if (request.method().dialect().system() == "verl") continue;
    ASSERT_THAT(answer.fields(), IsEmpty());
    EXPECT_EQ(answer.response.loss(), 0.0);
    EXPECT_THAT(answer.gradient(), Each(0.0f));
  }
}

TEST(RowDivisors, ReplaceTheRowsTokens) {
  // Rows of 4, 3, 2 and 1 tokens, as if each were half of a rollout.
  v1::CorrectRequest request = Rows(0, 4);
  Preset("gspo")(&request);
  const Answer own = AnswerOf(request);
  for (const double divisor : {8.0, 6.0, 4.0, 2.0}) {
    request.add_row_divisors(divisor);
  }
  const Answer halves = AnswerOf(request);
  ASSERT_THAT(halves.fields(), IsEmpty());
  EXPECT_DOUBLE_EQ(halves.response.loss(), 0.5 * own.response.loss());
}

TEST(RowDivisors, AreRefusedByNameWhereTheyAreNotReadOrWrong) {
  const auto divisors = [](std::vector<double> numbers) {
    return [=](v1::CorrectRequest* request) {
      for (const double number : numbers) request->add_row_divisors(number);
    };
  };
  const auto good = divisors({4, 3, 2, 1});
  EXPECT_THAT(Fields(Preset("ppo_clip"), good), ElementsAre("row_divisors"));
  EXPECT_THAT(Fields(Preset("token_tis"), good), ElementsAre("row_divisors"));
  EXPECT_THAT(Fields(SystemBlock("trl", R"({"loss_type": "grpo"})"), good),
              ElementsAre("row_divisors"));
  EXPECT_THAT(Fields(Preset("gspo"), divisors({4, 3})),
              ElementsAre("row_divisors"));
  EXPECT_THAT(Fields(Preset("gspo"), divisors({4, 3, 0, 1})),
              ElementsAre("row_divisors[2]"));
}

}  // namespace
}  // namespace counterweight::server
