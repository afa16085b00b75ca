// The end of regions, also of clients that died.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/support/status_code_enum.h"
#include "gtest/gtest.h"
#include "server/shared_memory/listener.h"
#include "tests/server/shared_memory/child_processes.h"
#include "tests/server/shared_memory/running_listener.h"
#include "tests/server/shared_memory/shared_memory_client.h"

namespace counterweight::server {
namespace {

using testing::HasSubstr;

TEST(Lifetime, ARegionEndsWithItsConnection) {
  RunningListener running;
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  std::string handle;
  {
    SharedMemoryClient client(running.path());
    handle =
        client.Register(memfd.get(), kRegionBytes, RegionAccess::kRead).handle;
    EXPECT_NE(running.listener().Find(handle), nullptr);
  }
  running.Settle();
  EXPECT_EQ(running.listener().Find(handle), nullptr);
  EXPECT_EQ(running.listener().regions(), 0);
  EXPECT_EQ(running.admission().bytes_in_flight(), 0);
  EXPECT_EQ(CountMemfdMappings(), 0);
}

TEST(Lifetime, ARequestKeepsItsRegion) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  std::string handle;
  {
    const ClientMemory memory(kRegionBytes);
    memory.data()[5] = 42;
    handle = client.Register(memory.memfd(), kRegionBytes, RegionAccess::kRead)
                 .handle;
  }
  auto held = running.listener().Find(handle);
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(client.Release(handle).code, grpc::StatusCode::OK);
  // New requests do not find it, even while an old one uses it.
  EXPECT_EQ(running.listener().Find(handle), nullptr);
  client.Finish();
  EXPECT_EQ(held->data()[5], std::byte{42});
  EXPECT_EQ(running.listener().regions(), 1);
  EXPECT_EQ(running.admission().bytes_in_flight(), kRegionBytes);
  running.Stop();
  EXPECT_EQ(held->data()[5], std::byte{42});
  EXPECT_EQ(running.admission().bytes_in_flight(), kRegionBytes);
  held.reset();
  EXPECT_EQ(running.admission().bytes_in_flight(), 0);
  EXPECT_EQ(CountMemfdMappings(), 0);
}

TEST(Lifetime, AReleasedHandleIsForgotten) {
  RunningListener running;
  SharedMemoryClient client(running.path());
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const std::string handle =
      client.Register(memfd.get(), kRegionBytes, RegionAccess::kRead).handle;
  EXPECT_FALSE(client.Release(handle).in_use);
  // The connection keeps nothing of it.
  EXPECT_EQ(client.Release(handle).code, grpc::StatusCode::NOT_FOUND);
}

TEST(Lifetime, TheEndOfTheListenerEndsEverything) {
  const int before = CountDescriptors();
  {
    RunningListener running;
    SharedMemoryClient client(running.path());
    client.Register(MakeMemfd(kRegionBytes).get(), kRegionBytes,
                    RegionAccess::kRead);
    running.Stop();
    EXPECT_EQ(client.Receive(), std::nullopt);
    EXPECT_EQ(running.admission().bytes_in_flight(), 0);
    EXPECT_NE(access(running.path().c_str(), F_OK), 0);
  }
  EXPECT_EQ(WaitForDescriptors(before), before);
  EXPECT_EQ(CountMemfdMappings(), 0);
}

// One client's life up to its death, in its own process.
int LiveAndDie(const std::string& path, int stage) {
  try {
    SharedMemoryClient client(path);
    const FileDescriptor memfd = MakeMemfd(kRegionBytes);
    const std::string packet =
        RegisterPacket(kRegionBytes, RegionAccess::kWrite);
    if (stage >= 1) client.Send(packet, {memfd.get()});
    if (stage >= 2) client.Receive();
    if (stage >= 3) client.Send(packet, {memfd.get()});
    if (stage >= 4) client.Release(client.Receive()->handle);
    // While it is connected: its destructor would close the connection.
    raise(SIGKILL);
  } catch (const std::exception&) {
    return 1;
  }
  return 2;
}

TEST(Lifetime, AThousandClientsThatAreKilledLeaveNothing) {
  constexpr int kStages = 5;
  ChildProcesses clients(LiveAndDie);
  RunningListener running;
  running.Settle();
  const int descriptors = CountDescriptors();
  for (int round = 0; round < 1000; ++round) {
    const int status = clients.Run(running.path(), round % kStages);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  running.Settle();
  EXPECT_EQ(WaitForDescriptors(descriptors), descriptors);
  EXPECT_EQ(CountMemfdMappings(), 0);
  EXPECT_EQ(running.listener().regions(), 0);
  EXPECT_EQ(running.listener().bytes(), 0);
  EXPECT_EQ(running.admission().bytes_in_flight(), 0);
  // No client was refused: dead clients do not occupy places.
  EXPECT_EQ(running.listener().errors(), 0);
}

TEST(Lifetime, RequestsAndClientsMayComeAndGoAtOnce) {
  RunningListener running;
  std::atomic<bool> done = false;
  std::string handles[2];
  std::atomic<int> newest = -1;
  std::atomic<int64_t> sum = 0;
  const ClientMemory memory(kRegionBytes);
  std::fill_n(memory.data(), kRegionBytes, uint8_t{1});
  SharedMemoryClient lasting(running.path());
  handles[0] =
      lasting.Register(memory.memfd(), kRegionBytes, RegionAccess::kRead)
          .handle;
  newest = 0;
  std::vector<std::thread> requests;
  for (int i = 0; i < 2; ++i) {
    requests.emplace_back([&] {
      while (!done) {
        const auto region = running.listener().Find(handles[0]);
        if (region != nullptr) {
          sum += static_cast<int>(region->data()[kRegionBytes - 1]);
        }
      }
    });
  }
  for (int round = 0; round < 300; ++round) {
    SharedMemoryClient client(running.path());
    const auto answer =
        client.Register(memory.memfd(), kRegionBytes, RegionAccess::kRead);
    ASSERT_EQ(answer.code, grpc::StatusCode::OK);
    if (round == 150) lasting.Release(handles[0]);
  }
  done = true;
  for (std::thread& request : requests) request.join();
  EXPECT_GT(sum, 0);
  lasting.Finish();
  running.Settle();
  EXPECT_EQ(running.listener().regions(), 0);
}

}  // namespace
}  // namespace counterweight::server
