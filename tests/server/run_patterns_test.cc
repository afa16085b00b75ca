#include "server/access/run_patterns.h"

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "gtest/gtest.h"
#include "server/access/token_table.h"

namespace counterweight::server {
namespace {

bool Allows(const std::string& patterns, const std::string& run) {
  RunPatterns parsed;
  EXPECT_TRUE(RunPatterns::Parse(patterns, &parsed)) << patterns;
  EXPECT_EQ(parsed.ToString(), patterns);
  return parsed.Allow(run);
}

TEST(RunPatterns, AStarIsAnyText) {
  EXPECT_TRUE(Allows("team-a-*", "team-a-1"));
  EXPECT_TRUE(Allows("team-a-*", "team-a-"));
  EXPECT_FALSE(Allows("team-a-*", "team-a"));
  EXPECT_FALSE(Allows("team-a-*", "team-b-1"));
  EXPECT_FALSE(Allows("team-a-*", "xteam-a-1"));
  EXPECT_TRUE(Allows("*-eval", "a-eval"));
  EXPECT_FALSE(Allows("*-eval", "a-eval-2"));
  EXPECT_TRUE(Allows("a*b*c", "aXbXbXc"));
  EXPECT_TRUE(Allows("a*b*c", "abc"));
  EXPECT_FALSE(Allows("a*b*c", "acb"));
  EXPECT_TRUE(Allows("a**b", "ab"));
}

TEST(RunPatterns, AStarTakesNothingTwice) {
  // After a mismatch '*' takes more of the name, never what comes before it.
  EXPECT_FALSE(Allows("ab*bX", "abX"));
  EXPECT_TRUE(Allows("ab*bX", "abbX"));
  EXPECT_FALSE(Allows("a", std::string("a\0", 2)));
}

TEST(RunPatterns, HaveTheCharactersOfNames) {
  constexpr std::string_view kOthers = "._-*";
  RunPatterns parsed;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool is_allowed =
        absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        kOthers.find(c) != kOthers.npos;
    EXPECT_EQ(RunPatterns::Parse(std::string("a") + c, &parsed), is_allowed)
        << byte;
  }
  EXPECT_TRUE(RunPatterns::Parse(std::string(64, 'a'), &parsed));
  EXPECT_FALSE(RunPatterns::Parse(std::string(65, 'a'), &parsed));
}

TEST(RunPatterns, ATextIsItself) {
  EXPECT_TRUE(Allows("run.1", "run.1"));
  EXPECT_FALSE(Allows("run.1", "run-1")) << "'.' is no pattern";
  EXPECT_FALSE(Allows("run.1", "run.1 ")) << "the whole name";
  EXPECT_FALSE(Allows("run", "run1"));
  EXPECT_FALSE(Allows("run", "ru"));
  EXPECT_FALSE(Allows("run", "Run"));
}

TEST(RunPatterns, OneOfSeveralIsEnough) {
  EXPECT_TRUE(Allows("a,b-*", "a"));
  EXPECT_TRUE(Allows("a,b-*", "b-1"));
  EXPECT_FALSE(Allows("a,b-*", "a,b-1"));
}

TEST(RunPatterns, OnlyAStarHasTheEmptyName) {
  EXPECT_TRUE(Allows("*", ""));
  EXPECT_TRUE(Allows("**", ""));
  EXPECT_FALSE(Allows("a*", ""));
  EXPECT_FALSE(Allows("*a", ""));
  EXPECT_TRUE(RunPatterns().Allow("")) << "a token without patterns";
  EXPECT_TRUE(RunPatterns().Allow("any"));
}

TEST(RunPatterns, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 31; ++i) pattern += "a*";
  EXPECT_FALSE(Allows(pattern + "b", std::string(64, 'a')));
}

TEST(RunPatterns, OthersAreNone) {
  RunPatterns parsed;
  for (const std::string& wrong :
       {std::string(), std::string(","), std::string("a,"), std::string(",a"),
        std::string("a,,b"), std::string("a b"), std::string("a?"),
        std::string("[a]"), std::string("a\nb"), std::string("\xc3\xa9"),
        std::string(65, 'a')}) {
    EXPECT_FALSE(RunPatterns::Parse(wrong, &parsed)) << wrong;
  }
  std::string many = "a";
  for (int i = 1; i < 64; ++i) many += ",a";
  EXPECT_TRUE(RunPatterns::Parse(many, &parsed));
  EXPECT_FALSE(RunPatterns::Parse(many + ",a", &parsed));
}

constexpr char kToken[] = "a-token-of-16-bytes";

std::string Line(const std::string& after) {
  return TokenLine("trainer", kToken).value() + after + "\n";
}

TEST(TokenRuns, AreTheThirdWord) {
  for (const char* after :
       {" runs=team-a-*,eval", "\t runs=team-a-*,eval \r"}) {
    const auto table = TokenTable::Parse(Line(after));
    ASSERT_TRUE(table.ok()) << table.status();
    const TokenTable::Token* const token = (*table)->Find(kToken);
    ASSERT_NE(token, nullptr);
    EXPECT_EQ(token->name, "trainer");
    EXPECT_TRUE(token->runs.Allow("team-a-1"));
    EXPECT_FALSE(token->runs.Allow("team-b-1"));
    EXPECT_FALSE(token->runs.Allow(""));
  }
  const auto free = TokenTable::Parse(Line(""));
  ASSERT_TRUE(free.ok());
  EXPECT_TRUE((*free)->Find(kToken)->runs.Allow("team-b-1"));
}

// While a token is rotated two lines have its name.
TEST(TokenRuns, AreThoseOfTheTokensOwnLine) {
  const std::string next = "the-next-token-of-it";
  const auto table = TokenTable::Parse(
      Line(" runs=team-a-*") + TokenLine("trainer", next).value() +
      " runs=team-b-*\n" + TokenLine("trainer", next + "2").value());
  ASSERT_TRUE(table.ok()) << table.status();
  const TokenTable::Token* const before = (*table)->Find(kToken);
  const TokenTable::Token* const after = (*table)->Find(next);
  const TokenTable::Token* const last = (*table)->Find(next + "2");
  ASSERT_NE(before, nullptr);
  ASSERT_NE(after, nullptr);
  ASSERT_NE(last, nullptr);
  EXPECT_TRUE(before->runs.Allow("team-a-1"));
  EXPECT_FALSE(before->runs.Allow("team-b-1"));
  EXPECT_TRUE(after->runs.Allow("team-b-1"));
  EXPECT_FALSE(after->runs.Allow("team-a-1"));
  EXPECT_TRUE(last->runs.Allow("team-c-1"));
}

TEST(TokenRuns, AWrongWordRefusesTheFile) {
  for (const char* after :
       {" runs=", " runs", " run=a", " Runs=a", " a", " runs=a b", " runs=a, b",
        " runs=a runs=b", " runs=a?", " runs=a,", " # team a"}) {
    const auto table = TokenTable::Parse("# tokens\n" + Line(after));
    EXPECT_FALSE(table.ok()) << after;
    EXPECT_NE(table.status().message().find("line 2: after the name comes "),
              std::string::npos)
        << table.status();
  }
}

}  // namespace
}  // namespace counterweight::server
