#include "server/engine/dialects/block_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/server/dialects/blocks.h"

namespace counterweight::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kNames[] = {"rollout_is", "rollout_rs",
                                       "bypass_mode"};

std::string NoHint(std::string_view) { return {}; }

std::vector<std::string> Descriptions(const Violations& violations) {
  std::vector<std::string> descriptions;
  for (const Violation& violation : violations) {
    descriptions.push_back(violation.description);
  }
  return descriptions;
}

TEST(FormatNumberTest, WritesTheShortestFormThatReadsBack) {
  EXPECT_EQ(FormatNumber(2.0), "2");
  EXPECT_EQ(FormatNumber(0.1), "0.1");
  EXPECT_EQ(FormatNumber(-1e-5), "-1e-05");
  EXPECT_EQ(FormatNumber(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FormatNumber(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(BlockReaderTest, ReadsBools) {
  const auto block = Block(R"({"yes": true, "null": null, "word": "false"})");
  Violations violations;
  const BlockReader reader(block, "block", &violations);
  EXPECT_TRUE(reader.ReadBool("yes", false));
  EXPECT_TRUE(reader.ReadBool("null", true));
  EXPECT_TRUE(reader.ReadBool("absent", true));
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_FALSE(reader.ReadBool("word", false));
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "block.word");
  EXPECT_THAT(violations[0].description, HasSubstr("got the string 'false'"));
}

TEST(BlockReaderTest, ReadsNumbersInTheirRange) {
  const auto block = Block(R"({"half": 0.5, "zero": 0, "null": null,
                               "true": true, "word": "1"})");
  Violations violations;
  const BlockReader reader(block, "block", &violations);
  EXPECT_EQ(reader.ReadNumber("half", 2.0), 0.5);
  EXPECT_EQ(reader.ReadNumber("half", 2.0, kPositive), 0.5);
  EXPECT_EQ(reader.ReadNumber("zero", 2.0, kNonNegative), 0.0);
  EXPECT_EQ(reader.ReadNumber("absent", 2.0), 2.0);
  EXPECT_EQ(reader.ReadOptionalNumber("half"), 0.5);
  EXPECT_EQ(reader.ReadOptionalNumber("null"), std::nullopt);
  EXPECT_EQ(reader.ReadOptionalNumber("absent"), std::nullopt);
  EXPECT_THAT(violations, IsEmpty());

  EXPECT_EQ(reader.ReadNumber("zero", 2.0, kPositive), 2.0);
  EXPECT_EQ(reader.ReadNumber("half", 0.0, {.highest = 0.25}), 0.0);
  EXPECT_EQ(reader.ReadOptionalNumber("half", {.lowest = 1.0, .highest = 2.0}),
            std::nullopt);
  EXPECT_EQ(reader.ReadNumber("null", 2.0), 2.0);
  EXPECT_EQ(reader.ReadNumber("true", 2.0), 2.0);
  EXPECT_EQ(reader.ReadNumber("word", 2.0), 2.0);
  EXPECT_THAT(
      Descriptions(violations),
      ElementsAre("zero must be a number > 0, got the number 0.",
                  "half must be a number <= 0.25, got the number 0.5.",
                  "half must be a number >= 1 and <= 2, got the number 0.5.",
                  "null must be a number, got null.",
                  "true must be a number, got the boolean true.",
                  "word must be a number, got the string '1'."));
}

TEST(BlockReaderTest, NotANumberIsOutsideEveryRange) {
  google::protobuf::Struct block;
  (*block.mutable_fields())["x"] =
      Number(std::numeric_limits<double>::quiet_NaN());
  Violations violations;
  const BlockReader reader(block, "block", &violations);
  EXPECT_EQ(reader.ReadNumber("x", 2.0), 2.0);
  EXPECT_EQ(reader.ReadOptionalNumber("x"), std::nullopt);
  EXPECT_EQ(violations.size(), 2u);
}

TEST(BlockReaderTest, CountsAreWholeNumbersFromOne) {
  const auto block = Block(R"({"one": 1, "large": 1e15, "zero": 0, "half": 1.5,
                               "beyond": 1e16})");
  Violations violations;
  const BlockReader reader(block, "block", &violations);
  EXPECT_EQ(reader.ReadCount("one", 7), 1);
  EXPECT_EQ(reader.ReadCount("large", 7), 1000000000000000);
  EXPECT_EQ(reader.ReadCount("absent", 7), 7);
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_EQ(reader.ReadCount("zero", 7), 7);
  EXPECT_EQ(reader.ReadCount("half", 7), 7);
  EXPECT_EQ(reader.ReadCount("beyond", 7), 7);
  EXPECT_EQ(violations.size(), 3u);
  EXPECT_THAT(violations[1].description, HasSubstr("a whole number >= 1"));
}

TEST(BlockReaderTest, ReadsStrings) {
  const auto block = Block(R"({"word": "a", "one": 1})");
  Violations violations;
  const BlockReader reader(block, "block", &violations);
  EXPECT_EQ(reader.ReadString("word", "b"), "a");
  EXPECT_EQ(reader.ReadString("absent", "b"), "b");
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_EQ(reader.ReadString("one", "b"), "b");
  EXPECT_THAT(Descriptions(violations),
              ElementsAre("one must be a string, got the number 1."));
}

TEST(BlockReaderTest, FindsNames) {
  const auto block =
      Block(R"({"a": "rollout_rs", "b": "rollout_rss", "c": null})");
  Violations violations;
  const BlockReader reader(block, "block", &violations);
  EXPECT_EQ(reader.ReadName("a", "rollout_is", kNames), 1u);
  EXPECT_EQ(reader.ReadName("absent", "bypass_mode", kNames), 2u);
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_EQ(reader.ReadName("b", "rollout_is", kNames, " See there."),
            std::nullopt);
  EXPECT_EQ(reader.ReadName("c", "rollout_is", kNames), std::nullopt);
  EXPECT_THAT(Descriptions(violations),
              ElementsAre("Unknown b: the string 'rollout_rss'. Did you mean "
                          "'rollout_rs'? Must be one of rollout_is, "
                          "rollout_rs, bypass_mode. See there.",
                          "Unknown c: null. Must be one of rollout_is, "
                          "rollout_rs, bypass_mode."));
}

TEST(BlockReaderTest, ReadsStructs) {
  const auto block = Block(R"({"inner": {"a": 1}, "null": null, "list": []})");
  Violations violations;
  const BlockReader reader(block, "block", &violations);
  EXPECT_NE(reader.ReadStruct("inner"), nullptr);
  EXPECT_EQ(reader.ReadStruct("null"), nullptr);
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_EQ(reader.ReadStruct("list"), nullptr);
  EXPECT_EQ(violations.size(), 1u);
}

TEST(BlockReaderTest, NamesUnknownKeysInOrder) {
  const auto block = Block(R"({"rollout_iss": 1, "bypas_mode": 2, "zzz": 3,
                               "rollout_rs": 4})");
  Violations violations;
  std::vector<std::string> warnings;
  BlockReader(block, "block", &violations)
      .CheckKeys(kNames, false, NoHint, &warnings);
  ASSERT_EQ(violations.size(), 3u);
  EXPECT_EQ(violations[0].field, "block.bypas_mode");
  EXPECT_EQ(violations[1].description,
            "Unknown field 'rollout_iss': did you mean 'rollout_is'?");
  EXPECT_EQ(violations[2].description,
            "Unknown field 'zzz': known fields are rollout_is, rollout_rs, "
            "bypass_mode.");
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(BlockReaderTest, WarnsOfUnknownKeysWhereTheyAreIgnored) {
  const auto block = Block(R"({"zzz": 3})");
  Violations violations;
  std::vector<std::string> warnings;
  BlockReader(block, "block", &violations)
      .CheckKeys(kNames, true, NoHint, &warnings);
  EXPECT_THAT(violations, IsEmpty());
  EXPECT_THAT(warnings, ElementsAre("Ignored the unknown field block.zzz."));
}

TEST(BlockReaderTest, KnowsFieldsThatChangeNoAnswer) {
  constexpr std::string_view kOthers[] = {"optimizer"};
  const auto block = Block(R"({"optimizer": {}, "optimiser": 1, "zzz": 2})");
  Violations violations;
  std::vector<std::string> warnings;
  BlockReader(block, "block", &violations)
      .CheckKeys(kNames, false, NoHint, &warnings, kOthers);
  EXPECT_THAT(Descriptions(violations),
              ElementsAre("Unknown field 'optimiser': did you mean "
                          "'optimizer'?",
                          "Unknown field 'zzz': known fields are rollout_is, "
                          "rollout_rs, bypass_mode."));
  BlockReader(block, "block", &violations)
      .CheckKeys(kNames, true, NoHint, &warnings, kOthers);
  EXPECT_EQ(violations.size(), 2u);
  EXPECT_EQ(warnings.size(), 2u);
}

TEST(BlockReaderTest, NamesFieldsByTheirAliases) {
  const auto block = Block("{}");
  Violations violations;
  const BlockReader reader(block, "block", &violations,
                           {{"threshold", "argument"}});
  EXPECT_EQ(reader.Path("threshold"), "block.argument");
  EXPECT_EQ(reader.Path("other"), "block.other");
}

}  // namespace
}  // namespace counterweight::server
