#include "server/observe/recent_ids.h"

#include <string>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

constexpr auto kServer = RecentIds::Source::kServer;
constexpr auto kPublication = RecentIds::Source::kPublication;

TEST(RecentIds, ForgetsTheOldest) {
  RecentIds ids(2);
  const RecentIds::Owner owner("run", "client");
  EXPECT_TRUE(ids.Insert(owner, "a", kServer));
  EXPECT_TRUE(ids.Insert(owner, "b", kServer));
  EXPECT_FALSE(ids.Insert(owner, "a", kServer));
  EXPECT_TRUE(ids.Insert(owner, "c", kServer));
  EXPECT_TRUE(ids.Insert(owner, "b", kServer)) << "a was used later than b";
  EXPECT_FALSE(ids.Insert(owner, "c", kServer));
  EXPECT_EQ(ids.size(), 2U);
}

TEST(RecentIds, AFloodTakesNoOtherOwnersPlace) {
  RecentIds ids(100);
  const RecentIds::Owner victim("run", "a");
  for (int i = 0; i < 20; ++i) ids.Insert(victim, std::to_string(i), kServer);
  for (int i = 0; i < 1000; ++i) {
    ids.Insert({"flood", "b"}, std::to_string(i), kPublication);
    ids.Insert({"run", "b"}, std::to_string(i), kPublication);
    ids.Insert({"", "a"}, std::to_string(i), kPublication);
  }
  EXPECT_EQ(ids.size(), 100U);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(ids.Insert(victim, std::to_string(i), kServer)) << i;
  }
}

TEST(RecentIds, APublicationHidesNoBatchOfTheServer) {
  RecentIds ids(10);
  const RecentIds::Owner owner("run", "client");
  EXPECT_TRUE(ids.Insert(owner, "x", kPublication));
  EXPECT_FALSE(ids.Insert(owner, "x", kPublication));
  EXPECT_TRUE(ids.Insert(owner, "x", kServer));
  EXPECT_FALSE(ids.Insert(owner, "x", kServer)) << "a retry";
  EXPECT_FALSE(ids.Insert(owner, "x", kPublication));
}

TEST(RecentIds, ForgetsARun) {
  RecentIds ids(10);
  ids.Insert({"r", "a"}, "x", kServer);
  ids.Insert({"r", "b"}, "x", kServer);
  ids.Insert({"r1", "a"}, "x", kServer);
  ids.Forget("r");
  EXPECT_EQ(ids.size(), 1U);
  EXPECT_FALSE(ids.Insert({"r1", "a"}, "x", kServer));
  EXPECT_TRUE(ids.Insert({"r", "a"}, "x", kServer));
}

}  // namespace
}  // namespace counterweight::server
