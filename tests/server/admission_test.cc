#include "server/call/admission.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Verdict = Admission::Verdict;

// The decisions by peer, and the tickets of admitted requests.
struct Decisions {
  std::vector<std::string> admitted;
  std::vector<std::string> refused;
  std::vector<Verdict> verdicts;
  std::vector<Admission::Ticket> tickets;

  // Released one by one: each release admits others.
  ~Decisions() {
    while (!tickets.empty()) EndOne();
  }

  Admission::Decide For(const std::string& name) {
    return [this, name](Verdict verdict, Admission::Ticket ticket) {
      verdicts.push_back(verdict);
      if (verdict == Verdict::kAdmitted) {
        admitted.push_back(name);
        tickets.push_back(std::move(ticket));
      } else {
        refused.push_back(name);
      }
    };
  }
  // Ends the request that was admitted first.
  void EndOne() {
    const Admission::Ticket first = std::move(tickets.front());
    tickets.erase(tickets.begin());
  }
};

Client Peer(const std::string& peer, const std::string& name = "") {
  return {peer, name};
}

constexpr Admission::Limits kLimits = {
    .max_requests = 2, .max_bytes = 1000, .max_queued = 4};

TEST(Admission, NewLimitsAdmitAndRefuseWhatWaits) {
  Admission admission({.max_requests = 1, .max_bytes = 100, .max_queued = 4});
  Decisions decisions;
  admission.Admit(Peer("client"), 10, 0, decisions.For("a"));
  admission.Admit(Peer("client"), 90, 0, decisions.For("large"));
  admission.Admit(Peer("client"), 20, 0, decisions.For("b"));
  admission.Admit(Peer("client"), 30, 0, decisions.For("c"));
  EXPECT_EQ(admission.requests_queued(), 3);
  admission.SetLimits({.max_requests = 2, .max_bytes = 50, .max_queued = 1});
  EXPECT_THAT(decisions.admitted, ElementsAre("a", "b"));
  EXPECT_THAT(decisions.refused, ElementsAre("large"));
  EXPECT_EQ(decisions.verdicts.at(1), Verdict::kTooLarge);
  // The queue is full now; what waits in it stays.
  admission.Admit(Peer("client"), 1, 0, decisions.For("d"));
  EXPECT_THAT(decisions.refused, ElementsAre("large", "d"));
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("a", "b", "c"));
}

TEST(Admission, LimitsRequests) {
  Admission admission(kLimits);
  Decisions decisions;
  for (const char* name : {"a", "b", "c"}) {
    admission.Admit(Peer("client"), 1, 0, decisions.For(name));
  }
  EXPECT_THAT(decisions.admitted, ElementsAre("a", "b"));
  EXPECT_EQ(admission.requests_queued(), 1);
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("a", "b", "c"));
  EXPECT_EQ(admission.requests_in_flight(), 2);
}

TEST(Admission, LimitsBytesInclusively) {
  Admission admission(kLimits);
  Decisions decisions;
  admission.Admit(Peer("client"), 600, 0, decisions.For("600"));
  admission.Admit(Peer("client"), 401, 0, decisions.For("401"));
  EXPECT_THAT(decisions.admitted, ElementsAre("600"));
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("600", "401"));
  admission.Admit(Peer("client"), 599, 0, decisions.For("599"));
  EXPECT_EQ(admission.bytes_in_flight(), 1000);
}

TEST(Admission, WhatNeverFitsIsRefusedAtOnce) {
  Admission admission(kLimits);
  Decisions decisions;
  admission.Admit(Peer("client"), 1001, 0, decisions.For("large"));
  EXPECT_THAT(decisions.verdicts, ElementsAre(Verdict::kTooLarge));
}

TEST(Admission, TheQueueIsBounded) {
  Admission admission(kLimits);
  Decisions decisions;
  for (int i = 0; i < 7; ++i) {
    admission.Admit(Peer("client"), 1, 0, decisions.For(std::to_string(i)));
  }
  EXPECT_THAT(decisions.refused, ElementsAre("6"));
  EXPECT_EQ(decisions.verdicts.back(), Verdict::kFull);
}

// Waiting requests that brought their bytes use memory: a quarter of the
// budget, in addition to it.
TEST(Admission, BytesThatWaitAreBounded) {
  Admission admission(kLimits);
  Decisions decisions;
  admission.Admit(Peer("client"), 1000, 1000, decisions.For("runs"));
  admission.Admit(Peer("client"), 300, 200, decisions.For("waits"));
  admission.Admit(Peer("client"), 300, 51, decisions.For("no room to wait"));
  admission.Admit(Peer("client"), 300, 50, decisions.For("waits too"));
  EXPECT_THAT(decisions.refused, ElementsAre("no room to wait"));
  EXPECT_EQ(admission.requests_queued(), 2);
  EXPECT_EQ(admission.held_bytes(), 250);
  // Requests that left the queue, admitted or abandoned, no longer count.
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("runs", "waits", "waits too"));
  EXPECT_EQ(admission.held_bytes(), 0);
  const uint64_t id =
      admission.Admit(Peer("client"), 900, 250, decisions.For("leaves"));
  EXPECT_EQ(admission.held_bytes(), 250);
  admission.Abandon(id);
  EXPECT_EQ(admission.held_bytes(), 0);
  admission.Admit(Peer("client"), 900, 250, decisions.For("waits now"));
  EXPECT_EQ(admission.requests_queued(), 1);
}

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

TEST(Admission, AnAbandonedRequestIsRefusedAndLetsOthersPass) {
  Admission admission({.max_requests = 9, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit(Peer("a"), 600, 0, decisions.For("first"));
  const uint64_t id =
      admission.Admit(Peer("b"), 900, 0, decisions.For("large"));
  admission.Admit(Peer("c"), 100, 0, decisions.For("small"));
  admission.Abandon(id);
  EXPECT_THAT(decisions.refused, ElementsAre("large"));
  EXPECT_THAT(decisions.admitted, ElementsAre("first", "small"));
  admission.Abandon(id);
  EXPECT_THAT(decisions.refused, ElementsAre("large"));
}

TEST(Admission, AMovedTicketCountsOnce) {
  Admission admission(kLimits);
  Decisions decisions;
  admission.Admit(Peer("client"), 600, 0, decisions.For("a"));
  {
    const Admission::Ticket moved = std::move(decisions.tickets.front());
    decisions.tickets.clear();
    EXPECT_EQ(admission.requests_in_flight(), 1);
  }
  EXPECT_EQ(admission.requests_in_flight(), 0);
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

// A peer may use the whole budget while no other peer waits.
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

TEST(Admission, AnAdmittedRequestGrowsAlsoWhileDraining) {
  Admission admission(kLimits);
  Decisions decisions;
  admission.Admit(Peer("client"), 400, 0, decisions.For("a"));
  Admission::Ticket& ticket = decisions.tickets.front();
  EXPECT_EQ(admission.Grow(601, &ticket), Verdict::kTooLarge);
  admission.Admit(Peer("client"), 100, 0, decisions.For("b"));
  EXPECT_EQ(admission.Grow(501, &decisions.tickets.front()), Verdict::kFull);
  admission.Close();
  EXPECT_EQ(admission.Grow(500, &decisions.tickets.front()),
            Verdict::kAdmitted);
  EXPECT_EQ(admission.bytes_in_flight(), 1000);
  decisions.EndOne();
  EXPECT_EQ(admission.bytes_in_flight(), 100);
}

// Its place is free; its bytes stay reserved until the client has read them.
TEST(Admission, AnAnswerHoldsItsBytesAndNoPlace) {
  Admission admission({.max_requests = 1, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit(Peer("client"), 900, 0, decisions.For("a"));
  admission.Admit(Peer("client"), 600, 0, decisions.For("b"));
  Admission::Ticket answer = std::move(decisions.tickets.front());
  decisions.tickets.clear();
  admission.BeginAnswer(500, &answer);
  EXPECT_EQ(admission.bytes_in_flight(), 500);
  EXPECT_EQ(admission.requests_in_flight(), 1);
  EXPECT_FALSE(admission.WaitUntilIdle(std::chrono::nanoseconds(0)));
  EXPECT_THAT(decisions.admitted, ElementsAre("a")) << "600 do not fit";
  admission.Admit(Peer("other"), 500, 0, decisions.For("c"));
  EXPECT_THAT(decisions.admitted, ElementsAre("a", "c"));
  answer = Admission::Ticket();
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("a", "c", "b"));
  decisions.EndOne();
  EXPECT_TRUE(admission.WaitUntilIdle(std::chrono::nanoseconds(0)));
  EXPECT_EQ(admission.bytes_in_flight(), 0);
}

// The request's bytes are free when its answer begins, not when it was read.
TEST(Admission, AnAnswerThatIsSmallerLetsOthersIn) {
  Admission admission({.max_requests = 9, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit(Peer("client"), 900, 0, decisions.For("a"));
  admission.Admit(Peer("client"), 400, 0, decisions.For("b"));
  EXPECT_THAT(decisions.admitted, ElementsAre("a"));
  Admission::Ticket answer = std::move(decisions.tickets.front());
  decisions.tickets.clear();
  admission.BeginAnswer(500, &answer);
  EXPECT_THAT(decisions.admitted, ElementsAre("a", "b"));
}

TEST(Admission, NothingIsLentThatRequestsHave) {
  Admission admission(kLimits);
  Decisions decisions;
  admission.Admit(Peer("client"), 700, 0, decisions.For("a"));
  Admission::Ticket lent;
  EXPECT_EQ(admission.Lend(301, &lent), Verdict::kFull);
  EXPECT_EQ(admission.Lend(300, &lent), Verdict::kAdmitted);
  EXPECT_EQ(admission.bytes_in_flight(), 1000);
}

TEST(Admission, LentBytesAreNoRequestAndHalfOfAllAtMost) {
  Admission admission(kLimits);
  Admission::Ticket first;
  Admission::Ticket second;
  EXPECT_EQ(admission.Lend(501, &first), Verdict::kTooLarge);
  ASSERT_EQ(admission.Lend(400, &first), Verdict::kAdmitted);
  EXPECT_EQ(admission.Lend(101, &second), Verdict::kFull);
  ASSERT_EQ(admission.Lend(100, &second), Verdict::kAdmitted);
  EXPECT_EQ(admission.lent_bytes(), 500);
  EXPECT_EQ(admission.bytes_in_flight(), 500);
  EXPECT_EQ(admission.requests_in_flight(), 0);
  // The other half is reserved for requests; a larger demand waits.
  Decisions decisions;
  admission.Admit(Peer("client"), 500, 0, decisions.For("half"));
  admission.Admit(Peer("client"), 600, 0, decisions.For("more"));
  EXPECT_THAT(decisions.admitted, ElementsAre("half"));
  decisions.EndOne();
  first = Admission::Ticket();
  EXPECT_EQ(admission.lent_bytes(), 100);
  EXPECT_THAT(decisions.admitted, ElementsAre("half", "more"));
}

TEST(Admission, NothingComesInAfterClose) {
  Admission admission({.max_requests = 1, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit(Peer("client"), 1, 0, decisions.For("runs"));
  admission.Admit(Peer("client"), 1, 7, decisions.For("waits"));
  EXPECT_EQ(admission.held_bytes(), 7);
  admission.Close();
  EXPECT_EQ(admission.held_bytes(), 0);
  EXPECT_THAT(decisions.refused, ElementsAre("waits"));
  admission.Admit(Peer("client"), 1, 0, decisions.For("late"));
  EXPECT_THAT(
      decisions.verdicts,
      ElementsAre(Verdict::kAdmitted, Verdict::kClosed, Verdict::kClosed));
  EXPECT_FALSE(admission.WaitUntilIdle(std::chrono::nanoseconds(0)));
  decisions.EndOne();
  EXPECT_TRUE(admission.WaitUntilIdle(std::chrono::nanoseconds(0)));
}

}  // namespace
}  // namespace counterweight::server
