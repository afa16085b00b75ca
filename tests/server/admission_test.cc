#include "server/admission.h"

#include <chrono>
#include <utility>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

using Verdict = Admission::Verdict;

TEST(Admission, LimitsRequests) {
  Admission admission(2, 1000);
  Admission::Ticket a;
  Admission::Ticket b;
  Admission::Ticket c;
  EXPECT_EQ(admission.Admit(1, &a), Verdict::kAdmitted);
  EXPECT_EQ(admission.Admit(1, &b), Verdict::kAdmitted);
  EXPECT_EQ(admission.Admit(1, &c), Verdict::kFull);
  a = Admission::Ticket();
  EXPECT_EQ(admission.Admit(1, &c), Verdict::kAdmitted);
}

TEST(Admission, LimitsBytesInclusively) {
  Admission admission(10, 1000);
  Admission::Ticket a;
  Admission::Ticket b;
  EXPECT_EQ(admission.Admit(1001, &a), Verdict::kFull);
  EXPECT_EQ(admission.Admit(600, &a), Verdict::kAdmitted);
  EXPECT_EQ(admission.Admit(401, &b), Verdict::kFull);
  EXPECT_EQ(admission.Admit(400, &b), Verdict::kAdmitted);
}

TEST(Admission, AMovedTicketCountsOnce) {
  Admission admission(10, 1000);
  {
    Admission::Ticket a;
    ASSERT_EQ(admission.Admit(600, &a), Verdict::kAdmitted);
    const Admission::Ticket b = std::move(a);
    EXPECT_EQ(admission.requests_in_flight(), 1);
  }
  EXPECT_EQ(admission.requests_in_flight(), 0);
}

TEST(Admission, NothingComesInAfterClose) {
  Admission admission(10, 1000);
  Admission::Ticket before;
  ASSERT_EQ(admission.Admit(1, &before), Verdict::kAdmitted);
  admission.Close();
  Admission::Ticket after;
  EXPECT_EQ(admission.Admit(1, &after), Verdict::kClosed);
  EXPECT_FALSE(admission.WaitUntilIdle(std::chrono::nanoseconds(0)));
  before = Admission::Ticket();
  EXPECT_TRUE(admission.WaitUntilIdle(std::chrono::nanoseconds(0)));
}

}  // namespace
}  // namespace counterweight::server
