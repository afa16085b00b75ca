// The release of a request, and effects of a block's release beyond the
// goldens: refusals that name a release, and warnings.
#include "server/engine/dialects/release.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/engine/dialects/openrlhf.h"
#include "server/engine/dialects/trl.h"
#include "server/engine/dialects/verl.h"
#include "tests/server/dialects/blocks.h"
#include "tests/server/dialects/translations.h"

namespace counterweight::server {
namespace {

using testing::AllOf;
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
