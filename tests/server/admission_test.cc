#include "server/admission.h"

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

// Who was told what, and the tickets of those who were let in.
struct Decisions {
  std::vector<std::string> admitted;
  std::vector<std::string> refused;
  std::vector<Verdict> verdicts;
  std::vector<Admission::Ticket> tickets;

  // One by one: each lets others in.
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

constexpr Admission::Limits kLimits = {
    .max_requests = 2, .max_bytes = 1000, .max_queued = 4};

TEST(Admission, LimitsRequests) {
  Admission admission(kLimits);
  Decisions decisions;
  for (const char* name : {"a", "b", "c"}) {
    admission.Admit("client", 1, 0, decisions.For(name));
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
  admission.Admit("client", 600, 0, decisions.For("600"));
  admission.Admit("client", 401, 0, decisions.For("401"));
  EXPECT_THAT(decisions.admitted, ElementsAre("600"));
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("600", "401"));
  admission.Admit("client", 599, 0, decisions.For("599"));
  EXPECT_EQ(admission.bytes_in_flight(), 1000);
}

TEST(Admission, WhatNeverFitsIsRefusedAtOnce) {
  Admission admission(kLimits);
  Decisions decisions;
  admission.Admit("client", 1001, 0, decisions.For("large"));
  EXPECT_THAT(decisions.verdicts, ElementsAre(Verdict::kTooLarge));
}

TEST(Admission, TheQueueIsBounded) {
  Admission admission(kLimits);
  Decisions decisions;
  for (int i = 0; i < 7; ++i) {
    admission.Admit("client", 1, 0, decisions.For(std::to_string(i)));
  }
  EXPECT_THAT(decisions.refused, ElementsAre("6"));
  EXPECT_EQ(decisions.verdicts.back(), Verdict::kFull);
}

// Requests that came with their bytes fill memory while they wait.
TEST(Admission, BytesThatWaitAreBounded) {
  Admission admission(kLimits);
  Decisions decisions;
  admission.Admit("client", 1000, 1000, decisions.For("runs"));
  admission.Admit("client", 900, 900, decisions.For("waits"));
  admission.Admit("client", 900, 101, decisions.For("no room to wait"));
  admission.Admit("client", 900, 100, decisions.For("waits too"));
  EXPECT_THAT(decisions.refused, ElementsAre("no room to wait"));
  EXPECT_EQ(admission.requests_queued(), 2);
}

TEST(Admission, ClientsTakeTurns) {
  Admission admission({.max_requests = 1, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit("greedy", 1, 0, decisions.For("greedy 0"));
  for (const char* name : {"greedy 1", "greedy 2", "greedy 3"}) {
    admission.Admit("greedy", 1, 0, decisions.For(name));
  }
  admission.Admit("modest", 1, 0, decisions.For("modest 1"));
  admission.Admit("other", 1, 0, decisions.For("other 1"));
  while (!decisions.tickets.empty()) decisions.EndOne();
  EXPECT_THAT(decisions.admitted,
              ElementsAre("greedy 0", "greedy 1", "modest 1", "other 1",
                          "greedy 2", "greedy 3"));
}

TEST(Admission, SmallRequestsDoNotOvertakeALargeOne) {
  Admission admission({.max_requests = 9, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit("a", 600, 0, decisions.For("first"));
  admission.Admit("b", 900, 0, decisions.For("large"));
  admission.Admit("c", 100, 0, decisions.For("small"));
  EXPECT_THAT(decisions.admitted, ElementsAre("first"));
  decisions.EndOne();
  EXPECT_THAT(decisions.admitted, ElementsAre("first", "large", "small"));
}

TEST(Admission, AnAbandonedRequestIsRefusedAndLetsOthersPass) {
  Admission admission({.max_requests = 9, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit("a", 600, 0, decisions.For("first"));
  const uint64_t id = admission.Admit("b", 900, 0, decisions.For("large"));
  admission.Admit("c", 100, 0, decisions.For("small"));
  admission.Abandon(id);
  EXPECT_THAT(decisions.refused, ElementsAre("large"));
  EXPECT_THAT(decisions.admitted, ElementsAre("first", "small"));
  admission.Abandon(id);
  EXPECT_THAT(decisions.refused, ElementsAre("large"));
}

TEST(Admission, AMovedTicketCountsOnce) {
  Admission admission(kLimits);
  Decisions decisions;
  admission.Admit("client", 600, 0, decisions.For("a"));
  {
    const Admission::Ticket moved = std::move(decisions.tickets.front());
    decisions.tickets.clear();
    EXPECT_EQ(admission.requests_in_flight(), 1);
  }
  EXPECT_EQ(admission.requests_in_flight(), 0);
}

TEST(Admission, AReservationIsNoRequest) {
  Admission admission(kLimits);
  Admission::Ticket ticket;
  EXPECT_EQ(admission.Reserve(1001, &ticket), Verdict::kTooLarge);
  ASSERT_EQ(admission.Reserve(900, &ticket), Verdict::kAdmitted);
  EXPECT_EQ(admission.bytes_in_flight(), 900);
  EXPECT_EQ(admission.requests_in_flight(), 0);
  Admission::Ticket more;
  EXPECT_EQ(admission.Reserve(101, &more), Verdict::kFull);
  // Whoever waits comes in when it ends.
  Decisions decisions;
  admission.Admit("client", 200, 0, decisions.For("a"));
  EXPECT_THAT(decisions.admitted, IsEmpty());
  ticket = Admission::Ticket();
  EXPECT_THAT(decisions.admitted, ElementsAre("a"));
}

TEST(Admission, NothingComesInAfterClose) {
  Admission admission({.max_requests = 1, .max_bytes = 1000, .max_queued = 9});
  Decisions decisions;
  admission.Admit("client", 1, 0, decisions.For("runs"));
  admission.Admit("client", 1, 0, decisions.For("waits"));
  admission.Close();
  EXPECT_THAT(decisions.refused, ElementsAre("waits"));
  admission.Admit("client", 1, 0, decisions.For("late"));
  EXPECT_THAT(
      decisions.verdicts,
      ElementsAre(Verdict::kAdmitted, Verdict::kClosed, Verdict::kClosed));
  EXPECT_FALSE(admission.WaitUntilIdle(std::chrono::nanoseconds(0)));
  decisions.EndOne();
  EXPECT_TRUE(admission.WaitUntilIdle(std::chrono::nanoseconds(0)));
}

}  // namespace
}  // namespace counterweight::server
