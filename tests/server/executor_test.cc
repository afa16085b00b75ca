#include "server/call/executor.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/admission_decisions.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;

constexpr auto kShort = Executor::Length::kShort;
constexpr auto kLong = Executor::Length::kLong;

TEST(Executor, FinishesWhatWasSubmitted) {
  std::atomic<int> done{0};
  {
    Executor executor(3);
    for (int i = 0; i < 100; ++i)
      executor.Submit(Peer("peer"), kShort, [&] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(Executor, RunsTasksSideBySide) {
  std::promise<void> first;
  std::promise<void> second;
  Executor executor(2);
  // Each waits for the other: one thread would hang.
  executor.Submit(Peer("peer"), kShort, [&] {
    first.set_value();
    second.get_future().wait();
  });
  executor.Submit(Peer("peer"), kShort, [&] {
    first.get_future().wait();
    second.set_value();
  });
}

// Another peer's task is next, whatever the number of one peer's tasks.
TEST(Executor, PeersTakeTurns) {
  std::promise<void> begin;
  std::vector<std::string> order;  // of the one thread
  {
    Executor executor(1);
    executor.Submit(Peer("greedy"), kShort, [&] { begin.get_future().wait(); });
    for (int i = 0; i < 3; ++i) {
      executor.Submit(Peer("greedy"), kShort, [&, i] {
        order.push_back("greedy " + std::to_string(i));
      });
    }
    executor.Submit(Peer("modest"), kShort, [&] { order.push_back("modest"); });
    begin.set_value();
  }
  EXPECT_THAT(order, ElementsAre("modest", "greedy 0", "greedy 1", "greedy 2"));
}

// A machine's trainers are one peer. The peer has no task that waits when the
// first one has begun.
TEST(Executor, NamesOfOnePeerTakeTurns) {
  std::promise<void> began;
  std::promise<void> begin;
  std::vector<std::string> order;  // of the one thread
  {
    Executor executor(1);
    const Client greedy{"peer", "greedy"};
    executor.Submit(greedy, kShort, [&] {
      began.set_value();
      begin.get_future().wait();
    });
    began.get_future().wait();
    for (int i = 0; i < 3; ++i) {
      executor.Submit(greedy, kShort, [&, i] {
        order.push_back("greedy " + std::to_string(i));
      });
    }
    executor.Submit({"peer", "modest"}, kShort,
                    [&] { order.push_back("modest"); });
    EXPECT_TRUE(executor.IsTurnOver(greedy, Executor::Clock::time_point()));
    begin.set_value();
  }
  EXPECT_THAT(order, ElementsAre("modest", "greedy 0", "greedy 1", "greedy 2"));
}

TEST(Executor, WhatHasBegunComesBeforeTheClientsOtherTasks) {
  std::promise<void> begin;
  std::vector<std::string> order;  // of the one thread
  {
    Executor executor(1);
    executor.Submit(Peer("a"), kShort, [&] {
      begin.get_future().wait();
      executor.Continue(Peer("a"), kShort, [&] { order.push_back("rest"); });
    });
    executor.Submit(Peer("a"), kShort, [&] { order.push_back("next"); });
    executor.Submit(Peer("b"), kShort, [&] { order.push_back("other"); });
    begin.set_value();
  }
  EXPECT_THAT(order, ElementsAre("other", "rest", "next"));
}

TEST(Executor, ATurnIsOverIfOthersWaitAndItWasLong) {
  const auto now = Executor::Clock::now();
  const auto long_ago = now - std::chrono::hours(1);
  std::promise<void> begin;
  Executor executor(1);
  EXPECT_FALSE(executor.IsTurnOver(Peer("a"), long_ago));
  executor.Submit(Peer("a"), kShort, [&] { begin.get_future().wait(); });
  executor.Submit(Peer("a"), kShort, [] {});
  EXPECT_FALSE(executor.IsTurnOver(Peer("a"), long_ago));
  EXPECT_TRUE(executor.IsTurnOver(Peer("b"), long_ago));
  EXPECT_FALSE(executor.IsTurnOver(Peer("b"), now + std::chrono::hours(1)));
  executor.Submit(Peer("b"), kShort, [] {});
  EXPECT_TRUE(executor.IsTurnOver(Peer("a"), long_ago));
  begin.set_value();
}

// The second long task has waited longer, and its peer is next.
TEST(Executor, LongTasksLeaveAThreadToShortOnes) {
  std::promise<void> end;
  std::promise<void> first_began;
  std::promise<void> short_ran;
  std::atomic<bool> second_began = false;
  Executor executor(2);
  executor.Submit(Peer("a"), kLong, [&] {
    first_began.set_value();
    end.get_future().wait();
  });
  first_began.get_future().wait();
  executor.Submit(Peer("b"), kLong, [&] { second_began = true; });
  executor.Submit(Peer("c"), kShort, [&] { short_ran.set_value(); });
  short_ran.get_future().wait();
  EXPECT_FALSE(second_began);
  end.set_value();
  executor.Stop();
  EXPECT_TRUE(second_began);
}

TEST(Executor, AShortTaskPassesLongOnesOfItsOwnClient) {
  std::promise<void> end;
  std::promise<void> short_ran;
  Executor executor(2);
  const std::shared_future<void> ended = end.get_future().share();
  for (int i = 0; i < 3; ++i) {
    executor.Submit(Peer("a"), kLong, [ended] { ended.wait(); });
  }
  executor.Submit(Peer("a"), kShort, [&] { short_ran.set_value(); });
  short_ran.get_future().wait();
  end.set_value();
}

TEST(Executor, OneThreadRunsLongTasksToo) {
  std::atomic<int> done = 0;
  Executor executor(1);
  for (int i = 0; i < 3; ++i)
    executor.Submit(Peer("a"), kLong, [&] { ++done; });
  executor.Stop();
  EXPECT_EQ(done, 3);
}

TEST(Executor, LengthIsJudgedByBytes) {
  EXPECT_EQ(Executor::LengthOf(int64_t{64} << 20), kShort);
  EXPECT_EQ(Executor::LengthOf((int64_t{64} << 20) + 1), kLong);
}

// A million empty ones reserve about 10 MB and compute for a tenth of a second.
TEST(Executor, LengthIsJudgedBySequences) {
  EXPECT_EQ(Executor::LengthOf(10'000'000, 1'000'000), kLong);
  EXPECT_EQ(Executor::LengthOf(10'000'000, 100'000), kShort);
}

}  // namespace
}  // namespace counterweight::server
