#include "server/call/call_clock.h"

#include <chrono>
#include <future>
#include <memory>

#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

struct TickedCall : TimedCall {
  void OnTick(std::chrono::steady_clock::time_point) override {
    if (++ticks == 2) ticked.set_value();
  }
  int ticks = 0;  // of the clock's thread
  std::promise<void> ticked;
};

TEST(CallClock, TicksUntilTheCallIsGone) {
  CallClock clock(std::chrono::milliseconds(1));
  auto ended = std::make_shared<TickedCall>();
  const std::shared_ptr<void> watch = clock.Watch(ended);
  std::weak_ptr<TickedCall> weak = ended;
  ended->ticked.get_future().wait();
  ended.reset();
  // A tick may hold it briefly; then it is destroyed, not kept.
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!weak.expired() && std::chrono::steady_clock::now() < end) {
  }
  EXPECT_TRUE(weak.expired());
}

TEST(CallClock, AWatchThatEndsEndsTheTicks) {
  CallClock clock(std::chrono::milliseconds(1));
  const auto quiet = std::make_shared<TickedCall>();
  clock.Watch(quiet).reset();
  const auto other = std::make_shared<TickedCall>();
  const std::shared_ptr<void> watch = clock.Watch(other);
  other->ticked.get_future().wait();
  clock.Stop();
  EXPECT_EQ(quiet->ticks, 0);
}

TEST(CallClock, AWatchMayOutliveIt) {
  const auto call = std::make_shared<TickedCall>();
  std::shared_ptr<void> watch;
  {
    CallClock clock(std::chrono::milliseconds(1));
    watch = clock.Watch(call);
  }
  watch.reset();
}

}  // namespace
}  // namespace counterweight::server
