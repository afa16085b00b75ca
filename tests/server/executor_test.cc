#include "server/executor.h"

#include <atomic>
#include <future>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

TEST(Executor, FinishesWhatWasSubmitted) {
  std::atomic<int> done{0};
  {
    Executor executor(3);
    for (int i = 0; i < 100; ++i) executor.Submit([&] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(Executor, RunsTasksSideBySide) {
  std::promise<void> first;
  std::promise<void> second;
  Executor executor(2);
  // Each waits for the other: one thread would hang.
  executor.Submit([&] {
    first.set_value();
    second.get_future().wait();
  });
  executor.Submit([&] {
    first.get_future().wait();
    second.set_value();
  });
}

}  // namespace
}  // namespace counterweight::server
