#include "server/engine/dialects/python_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace counterweight::server {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct FloatCase {
  std::string_view text;
  double number;
};

// The expected values are CPython 3.11's.
TEST(ParsePythonFloatTest, ReadsWhatPythonReads) {
  const FloatCase cases[] = {
      {"2", 2.0},
      {"2.0", 2.0},
      {" 2.5\t\n", 2.5},
      {"+.5", 0.5},
      {"5.", 5.0},
      {"-1e-2", -0.01},
      {"1_000", 1000.0},
      {"1_0.2_5", 10.25},
      {"1e1_0", 1e10},
      {"1E3", 1000.0},
      {"inf", kInf},
      {"-Infinity", -kInf},
      {"+iNf", kInf},
      {"1e400", kInf},
      {"1e-400", 0.0},
      {"00.10", 0.1},
      {"\x1c"
       "3\x1f",
       3.0},
      {"-0", 0.0},
      {"2.2250738585072014e-308", 2.2250738585072014e-308},
      {"0.1000000000000000055511151231257827", 0.1}};
  for (const FloatCase& c : cases) {
    const std::optional<double> number = ParsePythonFloat(c.text);
    ASSERT_TRUE(number.has_value()) << c.text;
    EXPECT_EQ(*number, c.number) << c.text;
  }
  for (const std::string_view text : {"nan", "NaN", "-nan", " +NAN "}) {
    ASSERT_TRUE(ParsePythonFloat(text).has_value()) << text;
    EXPECT_TRUE(std::isnan(*ParsePythonFloat(text))) << text;
  }
}

TEST(ParsePythonFloatTest, RefusesWhatPythonRefuses) {
  for (const std::string_view text :
       {"",      " ",    ".",    "+",     "-",   "e5",      ".e5",  "1e",
        "1e+",   "0x10", "1__0", "_1",    "1_",  "1_.5",    "1._5", "1_e5",
        "1e_5",  "1e5_", "1 2",  "1.2.3", "+-1", "infinit", "in f", "nan1",
        "- inf", "1f",   "1,5",  "--1",   "True"}) {
    EXPECT_FALSE(ParsePythonFloat(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace counterweight::server
