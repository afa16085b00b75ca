#include "server/call/arrivals.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Calls {
  Arrivals arrivals{3};
  std::vector<std::shared_ptr<void>> places;
  std::vector<std::string> gave_way;
  Arrivals::Time now;

  // Returns whether the call got a place.
  bool Enter(const std::string& peer, const std::string& name,
             const std::string& connection = "") {
    places.push_back(arrivals.Enter(
        peer, connection, now, [this, name] { gave_way.push_back(name); }));
    return places.back() != nullptr;
  }
};

TEST(Arrivals, PlacesAreGivenBack) {
  Calls calls;
  EXPECT_TRUE(calls.Enter("a", "a1"));
  EXPECT_TRUE(calls.Enter("a", "a2"));
  EXPECT_TRUE(calls.Enter("a", "a3"));
  EXPECT_FALSE(calls.Enter("a", "a4"));
  calls.places.erase(calls.places.begin());
  EXPECT_EQ(calls.arrivals.calls(), 2);
  EXPECT_TRUE(calls.Enter("a", "a5"));
  calls.places.clear();
  EXPECT_EQ(calls.arrivals.calls(), 0);
  EXPECT_THAT(calls.gave_way, IsEmpty());
}

TEST(Arrivals, TheNewestOfThePeerWithMostGivesWay) {
  Calls calls;
  for (const char* name : {"a1", "a2", "a3"}) calls.Enter("a", name);
  EXPECT_TRUE(calls.Enter("b", "b1"));
  EXPECT_THAT(calls.gave_way, ElementsAre("a3"));
  // Two and one: b would have as many as a.
  EXPECT_FALSE(calls.Enter("b", "b2"));
  EXPECT_TRUE(calls.Enter("c", "c1"));
  EXPECT_THAT(calls.gave_way, ElementsAre("a3", "a2"));
  EXPECT_EQ(calls.arrivals.calls(), 3);
  // A revoked place is not released twice.
  calls.places.clear();
  EXPECT_EQ(calls.arrivals.calls(), 0);
}

TEST(Arrivals, WithinAPeerConnectionsShareThePlaces) {
  Calls calls;
  EXPECT_TRUE(calls.Enter("a", "flood1", "flood"));
  EXPECT_TRUE(calls.Enter("a", "flood2", "flood"));
  EXPECT_TRUE(calls.Enter("a", "honest1", "honest"));
  // As many as the other would have.
  EXPECT_FALSE(calls.Enter("a", "honest2", "honest"));
  EXPECT_FALSE(calls.Enter("a", "flood3", "flood"));
  EXPECT_TRUE(calls.Enter("a", "third1", "third"));
  EXPECT_THAT(calls.gave_way, ElementsAre("flood2"));
  EXPECT_EQ(calls.arrivals.calls(), 3);
  EXPECT_FALSE(calls.Enter("a", "fourth1", "fourth"));
}

TEST(Arrivals, SilenceGivesWayToItsOwnPeer) {
  Calls calls;
  EXPECT_TRUE(calls.Enter("a", "a1"));
  calls.now += Arrivals::kSilence / 2;
  for (const char* name : {"a2", "a3"}) EXPECT_TRUE(calls.Enter("a", name));
  EXPECT_FALSE(calls.Enter("a", "a4"));
  calls.now += Arrivals::kSilence / 2;
  EXPECT_TRUE(calls.Enter("a", "a5"));
  EXPECT_THAT(calls.gave_way, ElementsAre("a1"));
  EXPECT_FALSE(calls.Enter("a", "a6")) << "a2 may still speak";
}

TEST(Arrivals, AFloodTakesNoSilentCallOfAnotherConnection) {
  Calls calls;
  EXPECT_TRUE(calls.Enter("a", "honest1", "honest"));
  calls.now += Arrivals::kSilence;
  EXPECT_TRUE(calls.Enter("a", "flood1", "flood"));
  EXPECT_TRUE(calls.Enter("a", "flood2", "flood"));
  EXPECT_FALSE(calls.Enter("a", "flood3", "flood"));
  calls.now += Arrivals::kSilence;
  EXPECT_TRUE(calls.Enter("a", "flood4", "flood"));
  EXPECT_THAT(calls.gave_way, ElementsAre("flood1"));
}

TEST(Arrivals, SilentConnectionsGiveWayToANewOne) {
  Calls calls;
  for (const char* name : {"a1", "a2", "a3"}) {
    EXPECT_TRUE(calls.Enter("a", name, name));
  }
  EXPECT_FALSE(calls.Enter("a", "a4", "a4"));
  calls.now += Arrivals::kSilence;
  EXPECT_TRUE(calls.Enter("a", "a5", "a5"));
  EXPECT_THAT(calls.gave_way, ElementsAre("a1"));
}

TEST(Arrivals, PlacesOutliveIt) {
  std::shared_ptr<void> place;
  {
    Arrivals arrivals(1);
    place = arrivals.Enter("a", "", {}, [] {});
  }
  place.reset();
}

}  // namespace
}  // namespace counterweight::server
