// The shares of peers.
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/call/admission.h"
#include "tests/server/admission_decisions.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;

TEST(Admission, ClientsTakeTurns) {
  Admission admission({.max_requests = 1, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit(Peer("greedy"), 1, 0, decisions.For("greedy 0"));
  for (const char* name : {"greedy 1", "greedy 2", "greedy 3"}) {
    admission.Admit(Peer("greedy"), 1, 0, decisions.For(name));
  }
  admission.Admit(Peer("modest"), 1, 0, decisions.For("modest 1"));
  admission.Admit(Peer("other"), 1, 0, decisions.For("other 1"));
  while (!decisions.tickets.empty()) decisions.EndOne();
  EXPECT_THAT(decisions.admitted,
              ElementsAre("greedy 0", "greedy 1", "modest 1", "other 1",
                          "greedy 2", "greedy 3"));
}

TEST(Admission, SmallRequestsDoNotOvertakeALargeOne) {
  Admission admission({.max_requests = 9, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit(Peer("a"), 600, 0, decisions.For("first"));
  admission.Admit(Peer("b"), 900, 0, decisions.For("large"));
  admission.Admit(Peer("c"), 100, 0, decisions.For("small"));
  EXPECT_THAT(decisions.admitted, ElementsAre("first"));
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("first", "large", "small"));
}

TEST(Admission, NamesOfOnePeerTakeTurnsWithinItsTurn) {
  Admission admission({.max_requests = 1, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit(Peer("node", "a"), 1, 0, decisions.For("a0"));
  for (const char* what : {"a1", "a2"}) {
    admission.Admit(Peer("node", "a"), 1, 0, decisions.For(what));
  }
  admission.Admit(Peer("node", "b"), 1, 0, decisions.For("b1"));
  admission.Admit(Peer("other"), 1, 0, decisions.For("other"));
  while (!decisions.tickets.empty()) decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("a0", "a1", "other", "b1", "a2"));
}

TEST(Admission, NoPeerIsGivenMoreThanHalfWhileOthersWait) {
  Admission admission({.max_requests = 4, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  for (const char* peer : {"z", "z", "a", "a", "a", "b", "b"}) {
    admission.Admit(Peer(peer), 1, 0, decisions.For(peer));
  }
  EXPECT_THAT(decisions.admitted, ElementsAre("z", "z", "a", "a"));
  decisions.EndOne();
  decisions.EndOne();
  // It is a's turn, but a has two of four places.
  EXPECT_THAT(decisions.admitted, ElementsAre("z", "z", "a", "a", "b", "b"));
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted,
              ElementsAre("z", "z", "a", "a", "b", "b", "a"));
}

TEST(Admission, BytesAreSharedAsRequestsAre) {
  Admission admission({.max_requests = 9, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit(Peer("z"), 600, 0, decisions.For("z"));
  admission.Admit(Peer("a"), 400, 0, decisions.For("a0"));
  admission.Admit(Peer("a"), 200, 0, decisions.For("a1"));
  admission.Admit(Peer("b"), 600, 0, decisions.For("b"));
  decisions.EndOne();
  // It is a's turn, but 600 of 1000 would be more than half.
  EXPECT_THAT(decisions.admitted, ElementsAre("z", "a0", "b"));
}

TEST(Admission, TheOnlyPeerThatWaitsMayHaveMoreThanHalf) {
  Admission admission({.max_requests = 2, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  for (const char* peer : {"z", "a", "a"}) {
    admission.Admit(Peer(peer), 1, 0, decisions.For(peer));
  }
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("z", "a", "a"));
}

TEST(Admission, AFullQueueShedsTheNewestOfThePeerThatWaitsMost) {
  Admission admission({.max_requests = 1, .max_bytes = 1000, .max_queued = 4});
  Decisions decisions;
  for (const char* what : {"runs", "g1", "g2", "g3", "g4"}) {
    admission.Admit(Peer("greedy", what), 1, 0, decisions.For(what));
  }
  admission.Admit(Peer("greedy"), 1, 0, decisions.For("g5"));
  EXPECT_THAT(decisions.refused, ElementsAre("g5"));
  admission.Admit(Peer("modest"), 1, 0, decisions.For("m1"));
  admission.Admit(Peer("modest"), 1, 0, decisions.For("m2"));
  EXPECT_THAT(decisions.refused, ElementsAre("g5", "g4", "g3"));
  // Both have two; the newcomer exceeds the limit.
  admission.Admit(Peer("modest"), 1, 0, decisions.For("m3"));
  EXPECT_THAT(decisions.refused, ElementsAre("g5", "g4", "g3", "m3"));
  EXPECT_EQ(admission.requests_queued(), 4);
}

TEST(Admission, WhoWouldHaveAsManyShedsNoOther) {
  Admission admission({.max_requests = 1, .max_bytes = 1000, .max_queued = 3});
  Decisions decisions;
  for (const char* what : {"runs", "g1", "g2"}) {
    admission.Admit(Peer("greedy"), 1, 0, decisions.For(what));
  }
  admission.Admit(Peer("modest"), 1, 0, decisions.For("m1"));
  admission.Admit(Peer("modest"), 1, 0, decisions.For("m2"));
  EXPECT_THAT(decisions.refused, ElementsAre("m2"));
}

TEST(Admission, HeldBytesAreShedAsPlacesAre) {
  Admission admission({.max_requests = 1, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  for (const char* what : {"runs", "g1", "g2"}) {
    admission.Admit(Peer("greedy"), 100, 100, decisions.For(what));
  }
  admission.Admit(Peer("modest"), 100, 60, decisions.For("m1"));
  EXPECT_THAT(decisions.refused, ElementsAre("g2"));
  // Two of them would have to leave; then modest would be the larger peer.
  admission.Admit(Peer("modest"), 100, 100, decisions.For("m2"));
  EXPECT_THAT(decisions.refused, ElementsAre("g2", "m2"));
  EXPECT_EQ(admission.held_bytes(), 160);
}

TEST(Admission, APeerCrowdsOutWhereOthersWaitForItsPart) {
  Admission admission({.max_requests = 4, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  for (const char* what : {"a0", "a1", "a2"}) {
    admission.Admit(Peer("a"), 100, 0, decisions.For(what));
  }
  EXPECT_FALSE(admission.IsCrowdingOut("a")) << "no peer waits";
  admission.Admit(Peer("c"), 1, 0, decisions.For("c"));
  EXPECT_FALSE(admission.IsCrowdingOut("a")) << "the other one has its place";
  decisions.tickets.pop_back();
  admission.Admit(Peer("a"), 800, 0, decisions.For("a3"));
  EXPECT_FALSE(admission.IsCrowdingOut("a")) << "it waits for itself";
  const uint64_t id = admission.Admit(Peer("b"), 800, 0, decisions.For("b"));
  EXPECT_TRUE(admission.IsCrowdingOut("a")) << "three of four places";
  EXPECT_FALSE(admission.IsCrowdingOut("b")) << "has nothing";
  decisions.EndOne();
  EXPECT_FALSE(admission.IsCrowdingOut("a")) << "two of four, 200 of 1000";
  admission.Abandon(id);
}

TEST(Admission, APeerCrowdsOutByItsBytesToo) {
  Admission admission({.max_requests = 9, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit(Peer("a"), 500, 0, decisions.For("a0"));
  admission.Admit(Peer("b"), 600, 0, decisions.For("b"));
  EXPECT_FALSE(admission.IsCrowdingOut("a")) << "half";
  admission.Grow(1, &decisions.tickets.front());
  EXPECT_TRUE(admission.IsCrowdingOut("a")) << "501 of 1000";
}

}  // namespace
}  // namespace counterweight::server
