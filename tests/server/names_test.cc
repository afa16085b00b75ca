#include "server/engine/names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace counterweight::server {
namespace {

constexpr std::string_view kNames[] = {"rollout_is", "rollout_rs",
                                       "bypass_mode", "grpo"};

TEST(QuoteTest, CutsLongTextAtACharactersEdge) {
  EXPECT_EQ(Quote("abc"), "'abc'");
  const std::string euros = "x€€€€€€€€€€€€€€€€€€€€€€€€€";  // 3 bytes each
  const std::string quoted = Quote(euros);
  EXPECT_EQ(quoted, "'" + euros.substr(0, 64) + "...'");
  EXPECT_EQ(Quote("€" + euros), "'€" + euros.substr(0, 61) + "...'");
}

TEST(EditDistanceTest, KnownAnswers) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("upper", "uper"), 1u);
  // Swapped neighbours are one edit, at both ends too.
  EXPECT_EQ(EditDistance("token_tsi", "token_tis"), 1u);
  EXPECT_EQ(EditDistance("rgpo", "grpo"), 1u);
  // No character is edited twice: this is not a swap and an insert.
  EXPECT_EQ(EditDistance("ca", "abc"), 3u);
  EXPECT_EQ(EditDistance("Token_TIS", "tokeN_tis"), 0u);
  // The distance ignores the case of ASCII letters only: '[' and '{' differ by
  // the same bit as 'A' and 'a'.
  EXPECT_EQ(EditDistance("[", "{"), 1u);
}

TEST(EditDistanceTest, IsSymmetricAndBounded) {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(random() % 12, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string a = word();
    const std::string b = word();
    const size_t distance = EditDistance(a, b);
    EXPECT_EQ(distance, EditDistance(b, a)) << a << " " << b;
    const size_t least = std::min(a.size(), b.size());
    const size_t most = std::max(a.size(), b.size());
    EXPECT_GE(distance, most - least) << a << " " << b;
    EXPECT_LE(distance, most) << a << " " << b;
    EXPECT_EQ(distance == 0, a == b) << a << " " << b;
    // A common prefix does not change the distance.
    EXPECT_EQ(EditDistance("xyz" + a, "xyz" + b), distance) << a << " " << b;
  }
}

TEST(EditDistanceTest, OneEditIsOne) {
  const std::string name = "geo_rs_token_tis";
  for (size_t i = 0; i < name.size(); ++i) {
    std::string edited = name;
    edited.erase(i, 1);
    EXPECT_EQ(EditDistance(edited, name), 1u) << edited;
    edited = name;
    edited.insert(i, "x");
    EXPECT_EQ(EditDistance(edited, name), 1u) << edited;
    edited = name;
    edited[i] = 'x';
    EXPECT_EQ(EditDistance(edited, name), 1u) << edited;
    if (i == 0) continue;
    edited = name;
    std::swap(edited[i - 1], edited[i]);
    EXPECT_EQ(EditDistance(edited, name), 1u) << edited;
  }
}

TEST(NearestNameTest, FindsMisspellings) {
  EXPECT_EQ(NearestName("rollout_iss", kNames), "rollout_is");
  EXPECT_EQ(NearestName("bypassmode", kNames), "bypass_mode");
  EXPECT_EQ(NearestName("grop", kNames), "grpo");
  EXPECT_EQ(NearestName("GRPO", kNames), "grpo");
  // It is equally near to rollout_is and rollout_rs; the first is suggested.
  EXPECT_EQ(NearestName("rollout_xs", kNames), "rollout_is");
}

TEST(NearestNameTest, IsEmptyWhereNothingIsNear) {
  EXPECT_EQ(NearestName("threshold", kNames), "");
  EXPECT_EQ(NearestName("gr", kNames), "");
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName("grpo", {}), "");
}

TEST(NearestNameTest, ComparesNoNameThatIsLongerThanAMessageShows) {
  const std::string known(kMaxNameBytes, 'r');
  const std::string_view names[] = {known};
  EXPECT_EQ(NearestName(std::string(kMaxNameBytes, 'r'), names), known);
  EXPECT_EQ(NearestName(std::string(kMaxNameBytes + 1, 'r'), names), "");
  EXPECT_EQ(NearestName(std::string(100000, 'r'), names), "");
}

TEST(DidYouMeanTest, IsASentenceOrNothing) {
  EXPECT_EQ(DidYouMean("grop", kNames), "Did you mean 'grpo'? ");
  EXPECT_EQ(DidYouMean("threshold", kNames), "");
}

}  // namespace
}  // namespace counterweight::server
