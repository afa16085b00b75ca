#include "server/call/admission_wait.h"

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "tests/server/fake_corrector.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using Verdict = Admission::Verdict;

// The parts of a server that a wait uses; it has room for one request.
class AdmissionWaitTest : public ::testing::Test {
 protected:
  AdmissionWaitTest() {
    admit_.config = &config_;
    admit_.admission = &admission_;
    admit_.executor = &executor_;
    admit_.metrics = &metrics_;
    admit_.uses = &uses_;
    admit_.transport = &transport_;
  }
  ~AdmissionWaitTest() override {
    executor_.Stop();
    uses_.WaitUntilUnused();
  }

  AdmissionWait::Decided Into(std::optional<Verdict>* verdict) {
    return [verdict](Verdict decided, const std::shared_ptr<Reservation>&) {
      *verdict = decided;
    };
  }

  static Config WithLongQueue() {
    Config config;
    config.max_queue_seconds = 3600;
    return config;
  }

  const CurrentConfig config_{WithLongQueue()};
  prometheus::Registry registry_;
  ServingMetrics metrics_{&registry_};
  Admission admission_{{.max_requests = 1, .max_bytes = 100, .max_queued = 2}};
  UseCount uses_;
  Executor executor_{1};
  std::vector<int64_t> transport_bytes_;
  TransportMemory transport_{
      [this](int64_t bytes) { transport_bytes_.push_back(bytes); }};
  AdmitContext admit_{};
};

TEST_F(AdmissionWaitTest, OneThatWaitsLeavesWhenItIsAbandoned) {
  Admission::Ticket running;
  admission_.Admit({}, 1, 0, [&](Verdict, Admission::Ticket ticket) {
    running = std::move(ticket);
  });
  std::optional<Verdict> verdict;
  AdmissionWait wait;
  wait.Begin(&admit_, {.client = {}, .bytes = 1}, Into(&verdict));
  EXPECT_EQ(admission_.requests_queued(), 1);
  EXPECT_FALSE(verdict);
  wait.Abandon();
  EXPECT_EQ(verdict, Verdict::kFull);
  EXPECT_EQ(admission_.requests_queued(), 0);
}

// A client may leave while its request is on its way to the queue.
TEST_F(AdmissionWaitTest, OneThatIsAbandonedBeforeItBeginsDoesNotWait) {
  Admission::Ticket running;
  admission_.Admit({}, 1, 0, [&](Verdict, Admission::Ticket ticket) {
    running = std::move(ticket);
  });
  std::optional<Verdict> verdict;
  AdmissionWait wait;
  wait.Abandon();
  wait.Begin(&admit_, {.client = {}, .bytes = 1}, Into(&verdict));
  EXPECT_EQ(verdict, Verdict::kFull);
  EXPECT_EQ(admission_.requests_queued(), 0);
}

TEST_F(AdmissionWaitTest, AReservationShowsInTheGaugesWhatItHolds) {
  {
    Admission::Ticket ticket;
    admission_.Admit({}, 40, 0, [&](Verdict, Admission::Ticket admitted) {
      ticket = std::move(admitted);
    });
    Reservation reservation(&admit_, std::move(ticket), /*received_bytes=*/0);
    EXPECT_EQ(metrics_.requests_in_flight.Value(), 1);
    EXPECT_EQ(metrics_.bytes_in_flight.Value(), 40);
    EXPECT_EQ(reservation.Grow(61), Verdict::kTooLarge);
    EXPECT_EQ(reservation.Grow(60), Verdict::kAdmitted);
    EXPECT_EQ(metrics_.bytes_in_flight.Value(), 100);
    reservation.BeginAnswer(30);
    EXPECT_EQ(metrics_.bytes_in_flight.Value(), 30);
    EXPECT_EQ(admission_.bytes_in_flight(), 30);
  }
  EXPECT_EQ(metrics_.requests_in_flight.Value(), 0);
  EXPECT_EQ(metrics_.bytes_in_flight.Value(), 0);
  EXPECT_EQ(admission_.bytes_in_flight(), 0);
}

// gRPC's memory has room for other messages as soon as this one is admitted,
// and until it has been parsed.
TEST_F(AdmissionWaitTest, AnAdmittedMessageIsBesideTheTransportsOwn) {
  Admission::Ticket running;
  admission_.Admit({}, 1, 0, [&](Verdict, Admission::Ticket ticket) {
    running = std::move(ticket);
  });
  std::promise<std::shared_ptr<Reservation>> admitted;
  AdmissionWait wait;
  wait.Begin(&admit_,
             {.client = {}, .bytes = 9, .held_bytes = 4, .received_bytes = 4},
             [&](Verdict, std::shared_ptr<Reservation> reservation) {
               admitted.set_value(std::move(reservation));
             });
  EXPECT_THAT(transport_bytes_, ElementsAre());
  running = {};
  const std::shared_ptr<Reservation> reservation = admitted.get_future().get();
  EXPECT_THAT(transport_bytes_, ElementsAre(4));
  reservation->EndReceived();
  EXPECT_THAT(transport_bytes_, ElementsAre(4, 0));
}

// The request fails before it is parsed.
TEST_F(AdmissionWaitTest, AReservationGivesBackWhatTheTransportGot) {
  Admission::Ticket ticket;
  admission_.Admit({}, 9, 0, [&](Verdict, Admission::Ticket admitted) {
    ticket = std::move(admitted);
  });
  {
    const Reservation reservation(&admit_, std::move(ticket),
                                  /*received_bytes=*/4);
    EXPECT_THAT(transport_bytes_, ElementsAre(4));
  }
  EXPECT_THAT(transport_bytes_, ElementsAre(4, 0));
}

}  // namespace
}  // namespace counterweight::server
