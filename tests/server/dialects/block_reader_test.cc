#include "server/dialects/block_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/server/dialects/blocks.h"

namespace counterweight::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kNames[] = {"rollout_is", "rollout_rs",
                                       "bypass_mode"};

std::string NoHint(std::string_view) { return {}; }

TEST(QuoteTest, CutsLongTextAtACharactersEdge) {
  EXPECT_EQ(Quote("abc"), "'abc'");
  const std::string euros = "x€€€€€€€€€€€€€€€€€€€€€€€€€";  // 3 bytes each
  const std::string quoted = Quote(euros);
  EXPECT_EQ(quoted, "'" + euros.substr(0, 64) + "...'");
  EXPECT_EQ(Quote("€" + euros), "'€" + euros.substr(0, 61) + "...'");
}

TEST(FormatNumberTest, WritesTheShortestFormThatReadsBack) {
  EXPECT_EQ(FormatNumber(2.0), "2");
  EXPECT_EQ(FormatNumber(0.1), "0.1");
  EXPECT_EQ(FormatNumber(-1e-5), "-1e-05");
  EXPECT_EQ(FormatNumber(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FormatNumber(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(NearestNameTest, FindsMisspellings) {
  EXPECT_EQ(NearestName("rollout_iss", kNames), "rollout_is");
  EXPECT_EQ(NearestName("bypassmode", kNames), "bypass_mode");
}

TEST(NearestNameTest, IsEmptyWhereNothingIsNear) {
  EXPECT_EQ(NearestName("threshold", kNames), "");
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName(std::string(100000, 'r'), kNames), "");
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
