#include "server/engine/dialects/verl_thresholds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/server/dialects/blocks.h"

namespace counterweight::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(SplitListTest, DropsBlanksAndEmptyParts) {
  EXPECT_THAT(SplitList(" a ,,b, "), ElementsAre("a", "b"));
  EXPECT_THAT(SplitList(" , "), IsEmpty());
  EXPECT_THAT(SplitList(""), IsEmpty());
}

// The threshold, or its one problem.
struct IsAnswer {
  std::optional<IsThreshold> threshold;
  std::vector<std::string> problems;
};

IsAnswer ParseIs(const google::protobuf::Value& value) {
  IsAnswer answer;
  answer.threshold = ParseIsThreshold(value, &answer.problems);
  return answer;
}

TEST(ParseIsThresholdTest, OneNumberTruncates) {
  for (const auto& value : {Number(2.5), String("2.5"), String(" 2.5 ")}) {
    const IsAnswer answer = ParseIs(value);
    ASSERT_TRUE(answer.threshold.has_value());
    EXPECT_EQ(answer.threshold->upper, 2.5);
    EXPECT_FALSE(answer.threshold->lower.has_value());
  }
}

TEST(ParseIsThresholdTest, TwoNumbersMask) {
  const IsAnswer answer = ParseIs(String("0.5_5_0"));
  ASSERT_TRUE(answer.threshold.has_value());
  EXPECT_EQ(answer.threshold->lower, 0.5);
  EXPECT_EQ(answer.threshold->upper, 50.0);
}

TEST(ParseIsThresholdTest, EqualBoundsAndInfinityAreAllowed) {
  EXPECT_TRUE(ParseIs(String("1_1")).threshold.has_value());
  EXPECT_TRUE(ParseIs(String("inf")).threshold.has_value());
  EXPECT_TRUE(ParseIs(String("0.5_inf")).threshold.has_value());
}

TEST(ParseIsThresholdTest, SaysWhatIsWrong) {
  const auto problem = [](const google::protobuf::Value& value) {
    const IsAnswer answer = ParseIs(value);
    EXPECT_FALSE(answer.threshold.has_value());
    return answer.problems.empty() ? std::string() : answer.problems[0];
  };
  EXPECT_THAT(problem(String("")), HasSubstr("empty"));
  EXPECT_THAT(problem(String("abc")), HasSubstr("'abc'"));
  EXPECT_THAT(problem(Number(0)), HasSubstr("positive, got 0"));
  EXPECT_THAT(problem(String("0_2")),
              HasSubstr("lower bound must be positive"));
  EXPECT_THAT(problem(String("5.0_0.5")), HasSubstr("lower bound must be <="));
  EXPECT_THAT(problem(String("nan")), HasSubstr("NaN"));
  EXPECT_THAT(problem(String("nan_2")),
              HasSubstr("lower bound is not a number"));
  google::protobuf::Value boolean;
  boolean.set_bool_value(true);
  EXPECT_THAT(problem(boolean), HasSubstr("not a boolean"));
  google::protobuf::Value list;
  list.mutable_list_value();
  EXPECT_THAT(problem(list), HasSubstr("a list"));
}

TEST(ParseIsThresholdTest, FindsBothBoundsWrong) {
  EXPECT_EQ(ParseIs(String("-1_-2")).problems.size(), 2u);
}

struct RsAnswer {
  std::vector<RsThreshold> thresholds;
  std::vector<std::string> problems;
};

RsAnswer ParseRs(const google::protobuf::Value& value,
                 std::initializer_list<std::string_view> names) {
  std::vector<const RsOption*> options;
  for (const std::string_view name : names) {
    options.push_back(FindRsOption(name));
  }
  RsAnswer answer;
  answer.thresholds = ParseRsThresholds(value, options, &answer.problems);
  return answer;
}

TEST(ParseRsThresholdsTest, OneEntryIsForAllOptions) {
  const RsAnswer answer = ParseRs(Number(2), {"token_k1", "seq_max_k3"});
  ASSERT_EQ(answer.thresholds.size(), 2u);
  EXPECT_EQ(answer.thresholds[0].lower, 0.5);
  EXPECT_EQ(answer.thresholds[0].upper, 2.0);
  EXPECT_EQ(answer.thresholds[1].lower, 0.0);
  EXPECT_EQ(answer.thresholds[1].upper, 2.0);
}

TEST(ParseRsThresholdsTest, EntriesMatchOptionsInOrder) {
  const RsAnswer answer =
      ParseRs(String(",.2,, 7e-1_ 1_0_0"), {"token_k3", "token_k1"});
  ASSERT_EQ(answer.thresholds.size(), 2u);
  EXPECT_EQ(answer.thresholds[0].upper, 0.2);
  EXPECT_EQ(answer.thresholds[1].lower, 0.7);
  EXPECT_EQ(answer.thresholds[1].upper, 100.0);
}

TEST(ParseRsThresholdsTest, SaysWhatIsWrong) {
  const auto problem = [](const google::protobuf::Value& value,
                          std::string_view option) {
    const RsAnswer answer = ParseRs(value, {option});
    EXPECT_THAT(answer.thresholds, IsEmpty());
    return answer.problems.empty() ? std::string() : answer.problems[0];
  };
  EXPECT_THAT(problem({}, "token_k1"), HasSubstr("explicitly provided"));
  EXPECT_THAT(problem(String(" , "), "token_k1"), HasSubstr("at least one"));
  EXPECT_THAT(problem(String("1,2"), "token_k1"),
              HasSubstr("exactly 1 threshold "));
  EXPECT_THAT(problem(String("0.5"), "token_k1"), HasSubstr("lower <= upper"));
  EXPECT_THAT(problem(String("0"), "token_k1"), HasSubstr("must be positive"));
  EXPECT_THAT(problem(String("inf"), "token_k1"),
              HasSubstr("must be positive"));
  EXPECT_THAT(problem(String("a_2"), "seq_mean_k1"),
              HasSubstr("'a_2' for option 'seq_mean_k1'"));
  EXPECT_THAT(problem(String("0.5_2"), "token_k2"), HasSubstr("without '_'"));
  EXPECT_THAT(problem(String("-1"), "seq_max_k3"), HasSubstr("positive"));
  EXPECT_THAT(problem(String("nan"), "token_k2"), HasSubstr("NaN"));
  EXPECT_THAT(problem(String(std::string(5000, '1')), "token_k2"),
              HasSubstr("longer than"));
}

TEST(ParseRsThresholdsTest, FindsEveryWrongEntry) {
  EXPECT_EQ(ParseRs(String("a,0,1"), {"token_k1", "token_k2", "token_k3"})
                .problems.size(),
            2u);
}

}  // namespace
}  // namespace counterweight::server
