#include "server/call/admission.h"

#include <chrono>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/admission_decisions.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using Verdict = Admission::Verdict;

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

// A peer may use the whole budget while no other peer waits.

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
