#include "server/engine/region.h"

#include <limits>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr int64_t kMostSigned = std::numeric_limits<int64_t>::max();

TEST(Contains, IsTrueUpToTheLastByte) {
  EXPECT_TRUE(Contains(100, 0, 100));
  EXPECT_TRUE(Contains(100, 99, 1));
  EXPECT_TRUE(Contains(100, 100, 0));
  EXPECT_TRUE(Contains(0, 0, 0));
  EXPECT_TRUE(Contains(kMostSigned, 0, kMostSigned));
  EXPECT_TRUE(Contains(kMostSigned, kMostSigned, 0));
}

TEST(Contains, IsFalseBeyond) {
  EXPECT_FALSE(Contains(100, 0, 101));
  EXPECT_FALSE(Contains(100, 100, 1));
  EXPECT_FALSE(Contains(100, 101, 0));
  EXPECT_FALSE(Contains(0, 0, 1));
}

TEST(Contains, IsFalseWhereTheSumWrapsAround) {
  EXPECT_FALSE(Contains(100, kMost, 1));
  EXPECT_FALSE(Contains(100, kMost - 9, 20));
  EXPECT_FALSE(Contains(100, 50, kMost - 10));
  EXPECT_FALSE(Contains(100, kMost, kMost));
  EXPECT_FALSE(Contains(kMostSigned, uint64_t{1} << 63, uint64_t{1} << 63));
}

TEST(Contains, NothingIsInsideANegativeSize) {
  EXPECT_FALSE(Contains(-1, 0, 0));
  EXPECT_FALSE(Contains(std::numeric_limits<int64_t>::min(), 0, 1));
}

}  // namespace
}  // namespace counterweight::server
