#include "server/json.h"

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
