// Bounds and characters of the lines of --tokens.
#include "server/access/token_table.h"

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kSomeToken = "known-token-0123456789";

bool IsNameCharacter(char c) {
  constexpr std::string_view kOthers = "._-";
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         kOthers.find(c) != kOthers.npos;
}

TEST(TokenLine, NamesAndTokensHaveTheirCharacters) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    EXPECT_EQ(TokenLine(std::string("a") + c, kSomeToken).ok(),
              IsNameCharacter(c))
        << byte;
    EXPECT_EQ(TokenLine("a", std::string(kSomeToken) + c).ok(),
              c > ' ' && c <= '~')
        << byte;
  }
}

TEST(TokenLine, NamesAndTokensHaveBounds) {
  EXPECT_FALSE(TokenLine("", kSomeToken).ok());
  EXPECT_TRUE(TokenLine(std::string(64, 'a'), kSomeToken).ok());
  EXPECT_FALSE(TokenLine(std::string(65, 'a'), kSomeToken).ok());
  EXPECT_FALSE(TokenLine("a", std::string(15, 'x')).ok());
  EXPECT_TRUE(TokenLine("a", std::string(16, 'x')).ok());
  EXPECT_TRUE(TokenLine("a", std::string(4096, 'x')).ok());
  EXPECT_FALSE(TokenLine("a", std::string(4097, 'x')).ok());
}

std::string ErrorOf(const std::string& text) {
  return std::string(TokenTable::Parse(text).status().message());
}

TEST(TokenTable, NamesTheFirstWrongLine) {
  const std::string right = TokenLine("a", kSomeToken).value();
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    // '#' would begin a comment, and a blank would end the word.
    if (IsNameCharacter(c) || c == '\n' ||
        absl::ascii_isspace(static_cast<unsigned char>(c)))
      continue;
    EXPECT_THAT(ErrorOf("x" + std::string(1, c) + right), HasSubstr("line 1: "))
        << byte;
  }
  EXPECT_EQ(ErrorOf(std::string(63, 'b') + right), "");
  EXPECT_THAT(ErrorOf(std::string(64, 'b') + right), HasSubstr("1 to 64"));
  EXPECT_THAT(ErrorOf(right + "\n\n# comment\nb\n"), HasSubstr("line 4: "));
  EXPECT_THAT(ErrorOf(right + "\nb" + right.substr(1)),
              HasSubstr("line 2: the token is there already"));
  EXPECT_THAT(ErrorOf("\n \t\r\n# only comments"),
              HasSubstr("no client could call"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("no client could call"));
}

TEST(TokenTable, AHashHas64HexadecimalDigits) {
  const std::string right = TokenLine("a", kSomeToken).value();
  EXPECT_EQ(ErrorOf(right + "\r"), "");
  EXPECT_NE(ErrorOf(right.substr(0, right.size() - 1)), "");
  EXPECT_NE(ErrorOf(right.substr(0, right.size() - 2)), "");
  EXPECT_NE(ErrorOf(right + "0"), "");
  EXPECT_NE(ErrorOf(right + "00"), "");
  EXPECT_NE(ErrorOf("a " + right.substr(right.find(':') + 1)), "");
  std::string other = right;
  other[right.find("sha256:")] = 'S';
  EXPECT_NE(ErrorOf(other), "");
  for (size_t i = right.find(':') + 1; i < right.size(); ++i) {
    for (const char c : {'g', '/', ':', '@', '`', 'x', '-', '+', '\0'}) {
      std::string wrong = right;
      wrong[i] = c;
      EXPECT_NE(ErrorOf(wrong), "") << i << " " << c;
    }
  }
}

}  // namespace
}  // namespace counterweight::server
