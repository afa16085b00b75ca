#include "client/cpp/transport/retry.h"

#include <gtest/gtest.h>

#include <vector>

namespace counterweight::client {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

Outcome Refused(StatusCode code,
                std::optional<milliseconds> retry_after = std::nullopt) {
  return {.status = {.code = code, .retry_after = retry_after}};
}

TEST(Retry, PausesAsLongAsTheServerAsks) {
  EXPECT_EQ(
      PauseAfter(Refused(StatusCode::kResourceExhausted, milliseconds(250)), 1),
      milliseconds(250));
  EXPECT_EQ(PauseAfter(
                Refused(StatusCode::kResourceExhausted, milliseconds(9000)), 3),
            milliseconds(9000));
  EXPECT_EQ(PauseAfter(Refused(StatusCode::kUnavailable), 1),
            milliseconds(100));
}

TEST(Retry, DoublesThePauseUpToFiveSeconds) {
  const Outcome outcome = Refused(StatusCode::kUnavailable);
  EXPECT_EQ(PauseAfter(outcome, 2), milliseconds(200));
  EXPECT_EQ(PauseAfter(outcome, 4), milliseconds(800));
  EXPECT_EQ(PauseAfter(outcome, 1000000), milliseconds(5000));
}

TEST(Retry, EndsWhereAnotherAttemptIsNoHelp) {
  for (const StatusCode code :
       {StatusCode::kInvalidArgument, StatusCode::kDeadlineExceeded,
        StatusCode::kInternal, StatusCode::kUnimplemented,
        StatusCode::kResourceExhausted}) {
    EXPECT_FALSE(PauseAfter(Refused(code), 1)) << ToString(code);
  }
  Outcome admitted = Refused(StatusCode::kUnavailable);
  admitted.admitted = true;
  EXPECT_FALSE(PauseAfter(admitted, 1));
  Outcome forbidden = Refused(StatusCode::kUnavailable);
  forbidden.retry_forbidden = true;
  EXPECT_FALSE(PauseAfter(forbidden, 1));
}

TEST(Retry, TriesAServerThatEndsOnceMore) {
  const auto attempts_of = [](std::vector<StatusCode> codes, StatusCode last) {
    int attempts = 0;
    const Status status = Retry(
        5, steady_clock::now() + hours(1), {},
        [&] { return Refused(codes.at(attempts - 1), milliseconds(0)); },
        &attempts);
    EXPECT_EQ(status.code, last);
    return attempts;
  };
  using enum StatusCode;
  EXPECT_EQ(attempts_of({kCancelled, kOk}, kOk), 2);
  EXPECT_EQ(attempts_of({kCancelled, kCancelled, kOk}, kCancelled), 2);
  EXPECT_EQ(attempts_of({kUnavailable, kCancelled, kUnavailable, kOk}, kOk), 4);
  EXPECT_EQ(attempts_of({kCancelled, kUnavailable, kCancelled}, kCancelled), 3);
}

TEST(Retry, DoesNotRepeatWhatTheCallerStopped) {
  std::stop_source stop;
  int attempts = 0;
  const Status status = Retry(
      5, steady_clock::now() + hours(1), stop.get_token(),
      [&] {
        stop.request_stop();
        return Refused(StatusCode::kCancelled, milliseconds(0));
      },
      &attempts);
  EXPECT_EQ(status.code, StatusCode::kCancelled);
  EXPECT_EQ(attempts, 1);
}

TEST(Retry, MakesNoMoreAttemptsThanAllowed) {
  int calls = 0;
  int attempts = 0;
  const Status status = Retry(
      3, steady_clock::now() + hours(1), {},
      [&] {
        ++calls;
        return Refused(StatusCode::kResourceExhausted, milliseconds(0));
      },
      &attempts);
  EXPECT_EQ(status.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(attempts, 3);
}

TEST(Retry, BeginsNoPauseThatWouldPassTheDeadline) {
  int attempts = 0;
  const Status status = Retry(
      3, steady_clock::now() + hours(1), {},
      [] { return Refused(StatusCode::kResourceExhausted, hours(2)); },
      &attempts);
  EXPECT_EQ(status.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(status.retry_after, hours(2));
  EXPECT_EQ(attempts, 1);
}

// Returns how many of 200 refused attempts begin a pause of an hour within
// `left`. None of them waits.
int PausesBegun(milliseconds left) {
  int begun = 0;
  for (int i = 0; i < 200; ++i) {
    std::stop_source stop;
    int attempts = 0;
    const Status status = Retry(
        2, steady_clock::now() + left, stop.get_token(),
        [&] {
          stop.request_stop();
          return Refused(StatusCode::kResourceExhausted, hours(1));
        },
        &attempts);
    if (status.code == StatusCode::kCancelled) ++begun;
  }
  return begun;
}

TEST(Retry, APauseHasUpToAQuarterOnTopAtRandom) {
  constexpr milliseconds kHour = hours(1);
  EXPECT_EQ(PausesBegun(kHour), 0);
  EXPECT_EQ(PausesBegun(kHour + kHour / 4 + std::chrono::minutes(1)), 200);
  // All or none is as unlikely as 200 equal coin tosses.
  const int begun = PausesBegun(kHour + kHour / 8);
  EXPECT_GT(begun, 0);
  EXPECT_LT(begun, 200);
}

TEST(Retry, AStopEndsThePause) {
  std::stop_source stop;
  int attempts = 0;
  const Status status = Retry(
      3, steady_clock::now() + hours(4), stop.get_token(),
      [&] {
        stop.request_stop();
        return Refused(StatusCode::kResourceExhausted, hours(2));
      },
      &attempts);
  EXPECT_EQ(status.code, StatusCode::kCancelled);
  EXPECT_EQ(attempts, 1);
}

}  // namespace
}  // namespace counterweight::client
