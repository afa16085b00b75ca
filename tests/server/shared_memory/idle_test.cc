// Idle connections.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/support/status_code_enum.h"
#include "gtest/gtest.h"
#include "server/shared_memory/listener.h"
#include "tests/server/fake_devices.h"
#include "tests/server/shared_memory/running_listener.h"
#include "tests/server/shared_memory/shared_memory_client.h"

namespace counterweight::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

const std::string kUnknown(16, 'x');

// A clock that the test moves.
class Clock {
 public:
  void Advance(milliseconds by) { now_ += by.count(); }
  std::function<steady_clock::time_point()> Read() const {
    return [this] { return steady_clock::time_point(milliseconds(now_)); };
  }

 private:
  std::atomic<int64_t> now_ = 1'000'000;
};

SharedMemoryListener::Options WithClock(const Clock& clock) {
  SharedMemoryListener::Options options = TestOptions();
  options.now = clock.Read();
  return options;
}

bool IsConnected(SharedMemoryClient* client) {
  if (!client->Send(ReleasePacket(kUnknown))) return false;
  return client->Receive().has_value();
}

TEST(IdleConnection, IsEnded) {
  auto options = TestOptions();
  options.idle_limit = milliseconds(50);
  RunningListener running(options);
  SharedMemoryClient silent(running.path());
  EXPECT_EQ(silent.Receive(), std::nullopt);
  // A connection that once sent a packet is idle too.
  SharedMemoryClient fallen_silent(running.path());
  EXPECT_EQ(fallen_silent.Release(kUnknown).code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(fallen_silent.Receive(), std::nullopt);
}

TEST(IdleConnection, IsNoneThatHasARegion) {
  auto options = TestOptions();
  options.idle_limit = milliseconds(50);
  RunningListener running(options);
  SharedMemoryClient client(running.path());
  const auto answer = client.Register(MakeMemfd(kRegionBytes).get(),
                                      kRegionBytes, RegionAccess::kRead);
  ASSERT_EQ(answer.code, grpc::StatusCode::OK);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(SharedMemoryClient(running.path()).Receive(), std::nullopt);
  }
  EXPECT_NE(running.listener().Find(answer.handle), nullptr);
  EXPECT_EQ(client.Release(answer.handle).code, grpc::StatusCode::OK);
  EXPECT_EQ(client.Receive(), std::nullopt);
}

TEST(IdleConnection, IsNoneWhoseRegionARequestUses) {
  Clock clock;
  FakeDevices devices;
  const FakeAllocation allocation(kFirstDevice, kRegionBytes);
  devices.Lend(allocation);
  auto options = WithClock(clock);
  options.backend = &devices;
  RunningListener running(options);
  SharedMemoryClient client(running.path());
  const std::string handle =
      client
          .Ask(DevicePacket(kRegionBytes, RegionAccess::kRead,
                            allocation.device(), allocation.handle()))
          .handle;
  auto held = running.listener().Find(handle);
  ASSERT_TRUE(client.Release(handle).in_use);
  clock.Advance(seconds(31));
  running.Settle();
  // It can still request whether the request is over.
  EXPECT_TRUE(client.Release(handle).in_use);
  held.reset();
  clock.Advance(seconds(31));
  running.Settle();
  EXPECT_EQ(client.Receive(), std::nullopt);
}

TEST(IdleConnection, HasHalfAMinuteFromItsLastPacket) {
  Clock clock;
  RunningListener running(WithClock(clock));
  SharedMemoryClient silent(running.path());
  SharedMemoryClient speaks(running.path());
  running.Settle();
  clock.Advance(seconds(20));
  EXPECT_TRUE(IsConnected(&speaks));
  clock.Advance(milliseconds(9999));
  running.Settle();
  clock.Advance(milliseconds(1));
  running.Settle();
  EXPECT_EQ(silent.Receive(), std::nullopt);
  EXPECT_TRUE(IsConnected(&speaks));
  clock.Advance(seconds(30));
  running.Settle();
  EXPECT_EQ(speaks.Receive(), std::nullopt);
  EXPECT_EQ(running.listener().errors(), 2) << "the unknown handles";
}

TEST(IdleConnection, GivesWayWhereNoPlaceIsLeft) {
  Clock clock;
  RunningListener running(WithClock(clock));
  std::vector<std::unique_ptr<SharedMemoryClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<SharedMemoryClient>(running.path()));
    ASSERT_TRUE(IsConnected(clients.back().get()));
    clock.Advance(seconds(1));
  }
  // The first connection is the last that sent a packet, and the second has a
  // region.
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  constexpr auto kRead = RegionAccess::kRead;
  ASSERT_EQ(clients[1]->Register(memfd.get(), kRegionBytes, kRead).code,
            grpc::StatusCode::OK);
  clock.Advance(seconds(1));
  ASSERT_TRUE(IsConnected(clients[0].get()));

  for (const size_t idlest : {2, 3, 0}) {
    clock.Advance(seconds(1));
    SharedMemoryClient next(running.path());
    EXPECT_EQ(next.Register(memfd.get(), kRegionBytes, kRead).code,
              grpc::StatusCode::OK);
    EXPECT_EQ(clients[idlest]->Receive(), std::nullopt) << idlest;
    clients[idlest] = std::make_unique<SharedMemoryClient>(std::move(next));
  }
  // All have regions now.
  SharedMemoryClient refused(running.path());
  EXPECT_THAT(refused.Receive().value().message, HasSubstr("in use"));
  for (const auto& client : clients) EXPECT_TRUE(IsConnected(client.get()));
  EXPECT_EQ(running.listener().regions(), 4);
}

TEST(IdleConnection, OfOurUserDoesNotGiveWayToAnothers) {
  std::atomic<uid_t> user = geteuid();
  auto options = TestOptions();
  options.peer_user_id = [&user](int) { return user.load(); };
  RunningListener running(options);
  std::vector<std::unique_ptr<SharedMemoryClient>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<SharedMemoryClient>(running.path()));
    ASSERT_TRUE(IsConnected(clients.back().get()));
  }
  user = geteuid() + 1;
  EXPECT_EQ(SharedMemoryClient(running.path()).Receive().value().code,
            grpc::StatusCode::PERMISSION_DENIED);
  for (const auto& client : clients) EXPECT_TRUE(IsConnected(client.get()));
}

}  // namespace
}  // namespace counterweight::server
