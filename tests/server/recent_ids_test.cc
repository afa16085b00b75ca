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

TEST(RecentIds, TheOwnerOfMostGivesItsOldest) {
  RecentIds ids(4);
  const RecentIds::Owner many("run", "many");
  for (const char* const id : {"1", "2", "3"}) ids.Insert(many, id, kServer);
  // Each owner of one id more takes the place of the oldest of `many`, which
  // has the most until all have one.
  ids.Insert({"run", "a"}, "x", kServer);
  ids.Insert({"run", "b"}, "x", kServer);
  ids.Insert({"run", "c"}, "x", kServer);
  EXPECT_EQ(ids.size(), 4U);
  for (const char* const owner : {"a", "b", "c"}) {
    EXPECT_FALSE(ids.Insert({"run", owner}, "x", kServer)) << owner;
  }
  EXPECT_FALSE(ids.Insert(many, "3", kServer));
  // All have one id now: the last owner by name loses its id, and its entry.
  ids.Insert({"run", "d"}, "x", kServer);
  EXPECT_EQ(ids.size(), 4U);
  for (const char* const owner : {"a", "b", "c", "d"}) {
    EXPECT_FALSE(ids.Insert({"run", owner}, "x", kServer)) << owner;
  }
  EXPECT_TRUE(ids.Insert(many, "3", kServer));
  EXPECT_EQ(ids.size(), 4U);
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
