#include "server/observe/json.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

std::string Quoted(std::string_view text) {
  std::string json;
  AppendJsonString(text, &json);
  return json;
}

TEST(Json, EscapesWhatWouldBreakALine) {
  EXPECT_EQ(Quoted("plain"), R"("plain")");
  EXPECT_EQ(Quoted("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(Quoted("a\nb\tc\x01"), R"("a\u000ab\u0009c\u0001")");
  EXPECT_EQ(Quoted(std::string_view("\0", 1)), R"("\u0000")");
}

TEST(Json, KeepsUtf8AndReplacesWhatIsNot) {
  EXPECT_EQ(Quoted("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\"");
  EXPECT_EQ(Quoted("\xFF"), R"("\ufffd")");
  EXPECT_EQ(Quoted("\xC3"), R"("\ufffd")") << "cut off";
  EXPECT_EQ(Quoted("\xC0\x80"), R"("\ufffd\ufffd")") << "overlong";
  EXPECT_EQ(Quoted("\xED\xA0\x80"), R"("\ufffd\ufffd\ufffd")") << "surrogate";
  EXPECT_EQ(Quoted("\xF4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")");
}

TEST(Json, EscapesWhatSplitsLinesOrFoolsTerminals) {
  EXPECT_EQ(Quoted("a\x7F"), R"("a\u007f")");
  EXPECT_EQ(Quoted("\u0080\u0085\u009b31m\u009F"),
            R"("\u0080\u0085\u009b31m\u009f")");
  EXPECT_EQ(Quoted("\u2028\u2029"), R"("\u2028\u2029")");
  EXPECT_EQ(Quoted("\u202A\u202B\u202C\u202D\u202Etxt.exe"),
            R"("\u202a\u202b\u202c\u202d\u202etxt.exe")");
  EXPECT_EQ(Quoted("\u2066\u2067\u2068\u2069"),
            R"("\u2066\u2067\u2068\u2069")");
  EXPECT_EQ(Quoted("\u200E\u200F\u061C\uFEFF"),
            R"("\u200e\u200f\u061c\ufeff")");
}

TEST(Json, KeepsTheirNeighbours) {
  for (const char* text :
       {"~", "\u00A0", "\u061B", "\u061D", "\u200D", "\u2010", "\u2027",
        "\u202F", "\u2065", "\u206A", "\uFEFE", "\uFF00", "\U0001F028"}) {
    EXPECT_EQ(Quoted(text), "\"" + std::string(text) + "\"");
  }
}

TEST(Json, BuildsObjects) {
  JsonObject tail;
  tail.Add("inner", true);
  JsonObject json;
  json.Add("text", "x")
      .Add("number", int64_t{-3})
      .Add("seconds", 0.25)
      .Add("nan", std::numeric_limits<double>::quiet_NaN())
      .AddRaw("raw", "[1]")
      .Append(tail)
      .Append({});
  EXPECT_EQ(
      json.Finish(),
      R"({"text":"x","number":-3,"seconds":0.25,"nan":null,"raw":[1],"inner":true})");
  EXPECT_EQ(JsonObject().Finish(), "{}");
}

}  // namespace
}  // namespace counterweight::server
