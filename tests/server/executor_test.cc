#include "server/call/executor.h"

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;

TEST(Executor, FinishesWhatWasSubmitted) {
  std::atomic<int> done{0};
  {
    Executor executor(3);
    for (int i = 0; i < 100; ++i) executor.Submit("peer", [&] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(Executor, RunsTasksSideBySide) {
  std::promise<void> first;
  std::promise<void> second;
  Executor executor(2);
  // Each waits for the other: one thread would hang.
  executor.Submit("peer", [&] {
    first.set_value();
    second.get_future().wait();
  });
  executor.Submit("peer", [&] {
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
    executor.Submit("greedy", [&] { begin.get_future().wait(); });
    for (int i = 0; i < 3; ++i) {
      executor.Submit(
          "greedy", [&, i] { order.push_back("greedy " + std::to_string(i)); });
    }
    executor.Submit("modest", [&] { order.push_back("modest"); });
    begin.set_value();
  }
  EXPECT_THAT(order, ElementsAre("modest", "greedy 0", "greedy 1", "greedy 2"));
}

TEST(Executor, TellsWhetherOthersWait) {
  std::promise<void> begin;
  Executor executor(1);
  EXPECT_FALSE(executor.IsWantedByOthers("a"));
  executor.Submit("a", [&] { begin.get_future().wait(); });
  executor.Submit("a", [] {});
  EXPECT_FALSE(executor.IsWantedByOthers("a"));
  EXPECT_TRUE(executor.IsWantedByOthers("b"));
  executor.Submit("b", [] {});
  EXPECT_TRUE(executor.IsWantedByOthers("a"));
  begin.set_value();
}

}  // namespace
}  // namespace counterweight::server
