// The release of a request, and effects of a block's release beyond the
// goldens: refusals that name a release, and warnings.
#include "server/engine/release.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/engine/dialects/openrlhf.h"
#include "server/engine/dialects/skyrl.h"
#include "server/engine/dialects/trl.h"
#include "server/engine/dialects/verl.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr DatedRelease kKnown[] = {
    {{1, 9, 0}, ""}, {{1, 10, 0}, "a"}, {{1, 16, 2}, "b"}};

struct Read {
  AskedRelease asked;
  std::vector<std::string> warnings;
  Violations violations;
};

Read ReadText(const std::string& text) {
  Read read;
  read.asked =
      ReadRelease("trl", kKnown, text, &read.warnings, &read.violations);
  return read;
}

RequestFacts Asking(Release release) {
  RequestFacts facts = AllTensors();
  facts.asked = {.release = release, .is_named = true};
  return facts;
}

TEST(Release, IsUpToThreeNumbersAndASuffix) {
  EXPECT_EQ(ParseRelease("0.11.2"), (Release{0, 11, 2}));
  EXPECT_EQ(ParseRelease("v0.9"), (Release{0, 9, 0}));
  EXPECT_EQ(ParseRelease("2"), (Release{2, 0, 0}));
  EXPECT_EQ(ParseRelease("1.17.0.dev0"), (Release{1, 17, 0}));
  EXPECT_EQ(ParseRelease("1.17rc1"), (Release{1, 17, 0}));
  EXPECT_EQ(ParseRelease("0.9.1+cu128"), (Release{0, 9, 1}));
  for (const char* text : {"", "v", "main", "1.x!", "-1.0", "1.100000",
                           "99999999999999999999", "1.0 0"}) {
    EXPECT_EQ(ParseRelease(text), std::nullopt) << text;
  }
}

TEST(Release, IsTheNewestWhereNoneIsNamed) {
  const Read read = ReadText("");
  EXPECT_EQ(read.asked.release, (Release{1, 16, 2}));
  EXPECT_FALSE(read.asked.is_named);
  EXPECT_THAT(read.warnings, IsEmpty());
}

TEST(Release, MayLieBetweenKnownOnes) {
  const Read read = ReadText("1.12.0");
  EXPECT_EQ(read.asked.release, (Release{1, 12, 0}));
  EXPECT_TRUE(read.asked.is_named);
  EXPECT_THAT(read.warnings, IsEmpty());
}

TEST(Release, NewerThanAllIsAWarning) {
  EXPECT_THAT(ReadText("1.16.2").warnings, IsEmpty());
  const Read read = ReadText("1.16.3");
  EXPECT_THAT(read.warnings,
              ElementsAre(AllOf(HasSubstr("1.16.3"), HasSubstr("1.16.2"))));
  EXPECT_TRUE(read.violations.empty());
}

TEST(Release, OlderThanAllAndNoReleaseAreRefused) {
  EXPECT_TRUE(ReadText("1.9.0").violations.empty());
  for (const char* text : {"1.8.9", "latest"}) {
    const Read read = ReadText(text);
    ASSERT_EQ(read.violations.size(), 1U) << text;
    EXPECT_EQ(read.violations.begin()->field, "method.dialect.release");
  }
}

// A block of each system, as an older and the newest release translate it.
TEST(Release, OpenrlhfFieldsOfAnotherAreRefusedNamingIt) {
  const auto old_block = Block(R"({"enable_vllm_is_correction": true})");
  const auto new_block = Block(R"({"is_correction_level": "token",
                                   "loss_agg_mode": "token-mean"})");
  for (const bool ignore : {false, true}) {
    const Translation newest =
        TranslateOpenrlhf(old_block, ignore, AllTensors());
    EXPECT_THAT(Fields(newest), ElementsAre("enable_vllm_is_correction"));
    EXPECT_THAT(newest.violations.begin()->description,
                AllOf(HasSubstr("before 0.11.2"), HasSubstr("0.11.1")));
    const Translation older =
        TranslateOpenrlhf(new_block, ignore, Asking({0, 11, 1}));
    EXPECT_THAT(Fields(older),
                UnorderedElementsAre("is_correction_level", "loss_agg_mode"));
    EXPECT_THAT(older.violations.begin()->description,
                HasSubstr("since 0.11.2"));
  }
  EXPECT_THAT(Fields(TranslateOpenrlhf(old_block, false, Asking({0, 11, 1}))),
              IsEmpty());
  EXPECT_THAT(Fields(TranslateOpenrlhf(new_block, false, AllTensors())),
              IsEmpty());
  const auto unbiased =
      Block(R"({"use_kl_loss": true, "unbiased_gradient": true})");
  EXPECT_THAT(Fields(TranslateOpenrlhf(unbiased, false, Asking({0, 11, 0}))),
              ElementsAre("unbiased_gradient"));
  EXPECT_THAT(Fields(TranslateOpenrlhf(unbiased, false, Asking({0, 11, 1}))),
              IsEmpty());
}

TEST(Release, VerlWarnsOfGspoWhereReleasesDiffer) {
  const auto block = [](const std::string& mode) {
    return Block(R"({"policy_loss": {"loss_mode": "gspo")" + mode + "}}");
  };
  EXPECT_THAT(
      TranslateVerl(block(""), false, AllTensors()).warnings,
      ElementsAre(AllOf(HasSubstr("loss_agg_mode"), HasSubstr("0.9.1"))));
  EXPECT_THAT(
      TranslateVerl(block(R"(, "loss_agg_mode": "seq-mean-token-mean")"), false,
                    AllTensors())
          .warnings,
      IsEmpty());
  EXPECT_THAT(TranslateVerl(block(""), false, Asking({0, 9, 1})).warnings,
              IsEmpty());
}

TEST(Release, TrlWarnsOfEachFieldWhereReleasesDiffer) {
  const auto warnings = [](const std::string& fields, RequestFacts facts) {
    return TranslateTrl(Block("{\"vllm_importance_sampling_correction\": false"
                              ", \"importance_sampling_level\": \"token\"" +
                              fields + "}"),
                        false, facts)
        .warnings;
  };
  const RequestFacts facts = AllTensors();
  EXPECT_THAT(warnings("", facts), IsEmpty());
  EXPECT_THAT(warnings(R"(, "steps_per_generation": 4)", facts),
              ElementsAre(HasSubstr("steps_per_generation")));
  EXPECT_THAT(warnings(R"(, "steps_per_generation": 4,
                           "gradient_accumulation_steps": 4)",
                       facts),
              IsEmpty());
  EXPECT_THAT(warnings(R"(, "loss_type": "luspo")", facts),
              ElementsAre(HasSubstr("luspo")));
  EXPECT_THAT(warnings(R"(, "loss_type": "dr_grpo")", facts),
              ElementsAre(AllOf(HasSubstr("max_completion_length"),
                                HasSubstr("1.10.0"))));
  EXPECT_THAT(
      warnings(R"(, "loss_type": "dr_grpo", "max_completion_length": 9)",
               facts),
      IsEmpty());
  EXPECT_THAT(warnings(R"(, "beta": 0.1)", facts),
              ElementsAre(HasSubstr("use_bias_correction_kl")));
  EXPECT_THAT(
      warnings(R"(, "beta": 0.1, "use_bias_correction_kl": true)", facts),
      IsEmpty());
  EXPECT_THAT(warnings(R"(, "use_liger_kernel": true)", facts),
              ElementsAre(HasSubstr("use_liger_kernel")));
  EXPECT_THAT(warnings(R"(, "beta": 0.1, "loss_type": "luspo",
                           "use_liger_kernel": true)",
                       Asking({1, 16, 0})),
              IsEmpty());
}

// Each change takes effect in the release that made it, not in a later one.
TEST(Release, TrlChangesInItsOwnReleases) {
  const auto loss = [](const std::string& fields, Release release) {
    return TranslateTrl(
               Block("{\"vllm_importance_sampling_correction\": false, "
                     "\"num_items_in_batch\": 8" +
                     fields + "}"),
               false, Asking(release))
        .spec.loss;
  };
  const std::string steps = R"(, "steps_per_generation": 4)";
  EXPECT_EQ(loss(steps, {1, 9, 0}).reduction.scale, 1.0 / 8);
  EXPECT_EQ(loss(steps, {1, 9, 1}).reduction.scale, 4.0 / 8);
  EXPECT_EQ(loss(steps, {1, 9, 2}).reduction.scale, 4.0 / 8);
  const std::string luspo =
      R"(, "loss_type": "luspo", "importance_sampling_level": "sequence",
          "beta": 0.1)";
  EXPECT_TRUE(loss(luspo, {1, 9, 2}).counts_padding);
  EXPECT_FALSE(loss(luspo, {1, 10, 0}).counts_padding);
  EXPECT_FALSE(loss(luspo, {1, 9, 2}).kl.importance_weighted);
  EXPECT_TRUE(loss(luspo, {1, 10, 0}).kl.importance_weighted);
  const std::string dr_grpo = R"(, "loss_type": "dr_grpo")";
  EXPECT_EQ(loss(dr_grpo, {1, 9, 2}).reduction.scale, 1.0 / 256);
  EXPECT_EQ(loss(dr_grpo, {1, 10, 0}).reduction.scale, 1.0 / 512);
  EXPECT_EQ(loss(dr_grpo + R"(, "max_completion_length": 100)", {1, 9, 0})
                .reduction.scale,
            1.0 / 100);
}

TEST(Release, SkyrlCispoHasItsOwnDefaults) {
  const auto block = [](const std::string& fields) {
    return Block(R"({"policy_loss_type": "cispo", "cispo": {)" + fields + "}}");
  };
  const auto bounds = [&](const std::string& fields, RequestFacts facts) {
    const auto loss = TranslateSkyrl(block(fields), false, facts).spec.loss;
    return std::pair(loss.clip_low, loss.clip_high);
  };
  const std::string both =
      R"("cispo_eps_clip_low": 0.5, "cispo_eps_clip_high": 2.0)";
  EXPECT_EQ(bounds("", Asking({0, 3, 0})), std::pair(0.0, 5.0));
  EXPECT_EQ(bounds("", Asking({0, 3, 1})), std::pair(0.0, 5.0));
  EXPECT_EQ(bounds("", Asking({0, 4, 0})), std::pair(1.0, 4.0));
  EXPECT_EQ(bounds(both, Asking({0, 3, 0})), std::pair(0.5, 2.0));
  EXPECT_THAT(TranslateSkyrl(block(""), false, AllTensors()).warnings,
              Contains(AllOf(HasSubstr("block.cispo:"), HasSubstr("0.4.0"))));
  EXPECT_THAT(TranslateSkyrl(block(both), false, AllTensors()).warnings,
              IsEmpty());
  EXPECT_THAT(TranslateSkyrl(block(""), false, Asking({0, 4, 0})).warnings,
              IsEmpty());
}

TEST(Release, SkyrlFieldsOfANewerAreRefusedNamingIt) {
  for (const char* json : {R"({"cispo": {"cispo_anchor": "old"}})",
                           R"({"enable_sample_support_replay": false})"}) {
    for (const bool ignore : {false, true}) {
      const Translation old =
          TranslateSkyrl(Block(json), ignore, Asking({0, 3, 0}));
      ASSERT_EQ(old.violations.size(), 1U) << json;
      EXPECT_THAT(old.violations.begin()->description,
                  AllOf(HasSubstr("since 0.4.0"), HasSubstr("0.3.0")));
      EXPECT_THAT(
          Fields(TranslateSkyrl(Block(json), ignore, Asking({0, 4, 0}))),
          IsEmpty());
    }
  }
}

// The loss is the same: SkyRL's workers renormalise before it.
TEST(Release, SkyrlWarnsOfSupportReplay) {
  const auto warnings = [](const char* json) {
    return TranslateSkyrl(Block(json), false, AllTensors()).warnings;
  };
  EXPECT_THAT(warnings(R"({"enable_sample_support_replay": true})"),
              ElementsAre(HasSubstr("enable_sample_support_replay")));
  EXPECT_THAT(warnings(R"({"enable_sample_support_replay": false})"),
              IsEmpty());
}

TEST(Release, TrlReadsStepsFromTheGenerationBatch) {
  const auto scale = [](const std::string& fields) {
    const Translation t =
        TranslateTrl(Block("{\"vllm_importance_sampling_correction\": false, "
                           "\"num_items_in_batch\": 8, \"num_processes\": 2" +
                           fields + "}"),
                     false, Asking({1, 16, 0}));
    return t.violations.empty() ? t.spec.loss.reduction.scale : -1.0;
  };
  EXPECT_EQ(scale(""), 2.0 / 8);
  EXPECT_EQ(scale(R"(, "steps_per_generation": 3)"), 3 * 2.0 / 8);
  EXPECT_EQ(scale(R"(, "gradient_accumulation_steps": 2,
                      "steps_per_generation": 3)"),
            1.5 * 2.0 / 8);
  EXPECT_EQ(scale(R"(, "generation_batch_size": 96)"), 6 * 2.0 / 8);
  EXPECT_EQ(scale(R"(, "generation_batch_size": 96,
                      "per_device_train_batch_size": 4)"),
            12 * 2.0 / 8);
  EXPECT_EQ(scale(R"(, "generation_batch_size": 97)"), -1.0);
}

}  // namespace
}  // namespace counterweight::server
