// Device memory by handle: opened and refused handles, and that all memory is
// closed.
#include <algorithm>
#include <array>
#include <future>
#include <string>
#include <thread>
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

using grpc::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Pair;
using testing::UnorderedElementsAre;

class DeviceMemory : public ::testing::Test {
 protected:
  DeviceMemory() { devices_.Lend(allocation_); }

  SharedMemoryListener::Options WithDevices() {
    SharedMemoryListener::Options options = TestOptions();
    options.backend = &devices_;
    return options;
  }

  std::string Packet(uint64_t size = kRegionBytes,
                     RegionAccess access = RegionAccess::kRead) const {
    return DevicePacket(size, access, allocation_.device(),
                        allocation_.handle());
  }

  const FakeAllocation allocation_{kFirstDevice, kRegionBytes};
  FakeDevices devices_;
  RunningListener running_{WithDevices()};
  SharedMemoryClient client_{running_.path()};
};

TEST_F(DeviceMemory, IsARegionOnItsDevice) {
  const auto answer =
      client_.Ask(Packet(kRegionBytes - 1, RegionAccess::kWrite));
  ASSERT_EQ(answer.code, StatusCode::OK) << answer.message;
  const auto region = running_.listener().Find(answer.handle);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->size(), kRegionBytes - 1);
  EXPECT_EQ(region->access(), RegionAccess::kWrite);
  EXPECT_EQ(region->device(), kFirstDevice);
  EXPECT_EQ(devices_.open(), 1);
}

TEST_F(DeviceMemory, IsNotHostMemory) {
  client_.Ask(Packet());
  EXPECT_EQ(running_.listener().regions(), 1);
  EXPECT_EQ(running_.listener().device_bytes(), kRegionBytes);
  EXPECT_EQ(running_.listener().bytes(), 0);
  EXPECT_EQ(running_.admission().bytes_in_flight(), 0);
}

TEST_F(DeviceMemory, EndsWithItsRelease) {
  const auto answer = client_.Ask(Packet());
  EXPECT_EQ(client_.Release(answer.handle).code, StatusCode::OK);
  EXPECT_EQ(running_.listener().Find(answer.handle), nullptr);
  EXPECT_EQ(devices_.open(), 0);
  EXPECT_EQ(running_.listener().device_bytes(), 0);
  EXPECT_EQ(client_.Release(answer.handle).code, StatusCode::NOT_FOUND);
}

TEST_F(DeviceMemory, EndsWithItsConnection) {
  client_.Ask(Packet());
  client_.Ask(Packet());
  EXPECT_EQ(devices_.open(), 2);
  client_.Finish();
  running_.Settle();
  EXPECT_EQ(devices_.open(), 0);
}

TEST_F(DeviceMemory, StaysOpenWhileARequestUsesIt) {
  const std::string handle = client_.Ask(Packet()).handle;
  auto held = running_.listener().Find(handle);
  client_.Finish();
  running_.Stop();
  EXPECT_EQ(devices_.open(), 1);
  held.reset();
  EXPECT_EQ(devices_.open(), 0);
}

TEST_F(DeviceMemory, AReleaseTellsWhetherRequestsUseItStill) {
  const std::string handle = client_.Ask(Packet()).handle;
  auto held = running_.listener().Find(handle);
  EXPECT_TRUE(client_.Release(handle).in_use);
  EXPECT_EQ(running_.listener().Find(handle), nullptr);
  EXPECT_TRUE(client_.Release(handle).in_use);
  held.reset();
  const auto last = client_.Release(handle);
  EXPECT_EQ(last.code, StatusCode::OK);
  EXPECT_FALSE(last.in_use);
  EXPECT_EQ(client_.Release(handle).code, StatusCode::NOT_FOUND);
}

// The client frees its memory after the answer, so the server must be done.
TEST_F(DeviceMemory, IsInUseUntilItIsClosed) {
  const std::string handle = client_.Ask(Packet()).handle;
  std::promise<void> closes;
  std::promise<void> may_close;
  devices_.PauseNextClose([&] {
    closes.set_value();
    may_close.get_future().wait();
  });
  auto held = running_.listener().Find(handle);
  ASSERT_TRUE(client_.Release(handle).in_use);
  std::thread request([&] { held.reset(); });
  closes.get_future().wait();
  EXPECT_TRUE(client_.Release(handle).in_use);
  may_close.set_value();
  request.join();
  EXPECT_EQ(devices_.open(), 0);
  EXPECT_FALSE(client_.Release(handle).in_use);
}

TEST_F(DeviceMemory, AMemfdsReleaseTellsNothing) {
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const auto answer =
      client_.Register(memfd.get(), kRegionBytes, RegionAccess::kRead);
  const auto held = running_.listener().Find(answer.handle);
  EXPECT_FALSE(client_.Release(answer.handle).in_use);
}

// So that it crosses the bus without a copy on the host.
TEST_F(DeviceMemory, AMemfdIsPinnedWhileItIsMapped) {
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const std::string read =
      client_.Register(memfd.get(), kRegionBytes, RegionAccess::kRead).handle;
  const std::string written =
      client_.Register(memfd.get(), kRegionBytes, RegionAccess::kWrite).handle;
  auto held = running_.listener().Find(read);
  EXPECT_THAT(devices_.pinned(),
              UnorderedElementsAre(
                  Pair(held->data(), FakeDevices::Pinned{kRegionBytes, true}),
                  Pair(running_.listener().Find(written)->data(),
                       FakeDevices::Pinned{kRegionBytes, false})));
  client_.Release(read);
  client_.Release(written);
  // A request still uses it.
  EXPECT_THAT(devices_.pinned(), ElementsAre(Key(held->data())));
  EXPECT_EQ(PermissionsOf(held->data()), "r--s");
  held.reset();
  EXPECT_THAT(devices_.pinned(), IsEmpty());
}

TEST_F(DeviceMemory, AMemfdThatCannotBePinnedIsARegion) {
  devices_.RefusePins();
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const auto answer =
      client_.Register(memfd.get(), kRegionBytes, RegionAccess::kRead);
  EXPECT_NE(running_.listener().Find(answer.handle), nullptr);
  client_.Release(answer.handle);
  EXPECT_EQ(CountMemfdMappings(), 0);
}

TEST_F(DeviceMemory, MoreThanTheAllocationIsRefusedAndClosed) {
  for (const uint64_t size : {uint64_t{kRegionBytes} + 1, uint64_t{1} << 63,
                              UINT64_MAX, UINT64_MAX - kRegionBytes + 1}) {
    const auto answer = client_.Ask(Packet(size));
    EXPECT_EQ(answer.code, StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(answer.message, HasSubstr("the allocation has 8192 bytes"));
    EXPECT_EQ(devices_.open(), 0);
  }
  EXPECT_THAT(client_.Ask(Packet(0)).message, HasSubstr("size is 0"));
  EXPECT_EQ(running_.listener().regions(), 0);
  EXPECT_EQ(client_.Ask(Packet()).code, StatusCode::OK)
      << "a refusal leaves the connection as it was";
}

TEST_F(DeviceMemory, WhatNobodyLentIsRefused) {
  kernels::IpcHandle unknown = allocation_.handle();
  unknown[63] ^= 1;
  const std::string packets[] = {
      DevicePacket(kRegionBytes, RegionAccess::kRead, kFirstDevice, unknown),
      DevicePacket(kRegionBytes, RegionAccess::kRead, kSecondDevice,
                   allocation_.handle()),
      DevicePacket(kRegionBytes, RegionAccess::kRead, {},
                   allocation_.handle())};
  for (const std::string& packet : packets) {
    const auto answer = client_.Ask(packet);
    EXPECT_EQ(answer.code, StatusCode::INVALID_ARGUMENT);
    EXPECT_FALSE(answer.message.empty());
  }
  EXPECT_EQ(running_.listener().errors(), 3);
  EXPECT_EQ(devices_.open(), 0);
}

TEST_F(DeviceMemory, ADescriptorEndsTheConnection) {
  client_.Ask(Packet());
  const FileDescriptor memfd = MakeMemfd(kRegionBytes);
  const int before = CountDescriptors();
  client_.Send(Packet(), {memfd.get()});
  EXPECT_EQ(client_.Receive()->code, StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(client_.Receive(), std::nullopt);
  running_.Settle();
  EXPECT_EQ(devices_.open(), 0);
  EXPECT_EQ(CountDescriptors(), before - 1);  // the server's end
}

// As torch's expandable segments are: parts with a descriptor each.
class DeviceParts : public DeviceMemory {
 protected:
  SharedMemoryAnswer Ask(uint64_t size, const std::vector<int>& parts,
                         kernels::DeviceUuid device = kFirstDevice) {
    client_.Send(PartsPacket(size, RegionAccess::kWrite, device), parts);
    return client_.Receive().value();
  }

  const ClientMemory first_{kRegionBytes};
  const ClientMemory second_{kRegionBytes};
  const std::vector<int> both_{first_.memfd(), second_.memfd()};
};

TEST_F(DeviceParts, AreOneRegionInTheirOrder) {
  first_.data()[kRegionBytes - 1] = 3;
  second_.data()[0] = 5;
  const auto answer = Ask(2 * kRegionBytes, both_);
  ASSERT_EQ(answer.code, StatusCode::OK) << answer.message;
  const auto region = running_.listener().Find(answer.handle);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->size(), 2 * kRegionBytes);
  EXPECT_EQ(region->access(), RegionAccess::kWrite);
  EXPECT_EQ(region->device(), kFirstDevice);
  std::array<uint8_t, 2> bytes{};
  std::string error;
  ASSERT_TRUE(devices_.CopyFromDevice(
      bytes.data(), region->data() + kRegionBytes - 1, 2, &error));
  EXPECT_THAT(bytes, ElementsAre(3, 5));
  EXPECT_EQ(running_.listener().device_bytes(), 2 * kRegionBytes);
  EXPECT_EQ(running_.admission().bytes_in_flight(), 0);
}

TEST_F(DeviceParts, EndWithTheirRelease) {
  const auto answer = Ask(2 * kRegionBytes, both_);
  auto held = running_.listener().Find(answer.handle);
  EXPECT_TRUE(client_.Release(answer.handle).in_use);
  held.reset();
  EXPECT_FALSE(client_.Release(answer.handle).in_use);
  EXPECT_EQ(devices_.open(), 0);
}

TEST_F(DeviceParts, AreClosedByTheServerAfterTheAnswer) {
  client_.Ask(Packet());  // the server has accepted the connection
  const int before = CountDescriptors();
  const auto answer = Ask(2 * kRegionBytes, both_);
  EXPECT_EQ(answer.code, StatusCode::OK);
  EXPECT_EQ(CountDescriptors(), before);
}

TEST_F(DeviceParts, OfImpossibleSizesAreRefused) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{2 * kRegionBytes + 1},
                              uint64_t{1} << 63, UINT64_MAX - 1}) {
    const auto answer = Ask(size, both_);
    EXPECT_EQ(answer.code, StatusCode::INVALID_ARGUMENT) << size;
    EXPECT_THAT(answer.message, HasSubstr("the size is")) << size;
  }
  EXPECT_EQ(Ask(4 * kRegionBytes, both_).message,
            "a part is no memory of this size");
  EXPECT_EQ(Ask(2 * kRegionBytes, both_, kSecondDevice).code,
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(devices_.open(), 0);
  EXPECT_EQ(Ask(2 * kRegionBytes, both_).code, StatusCode::OK)
      << "a refusal leaves the connection as it was";
}

TEST_F(DeviceParts, WithoutADescriptorEndTheConnection) {
  const auto answer = Ask(kRegionBytes, {});
  EXPECT_EQ(answer.code, StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(answer.message, HasSubstr("a descriptor for each"));
  EXPECT_EQ(client_.Receive(), std::nullopt);
}

TEST_F(DeviceParts, MayBeAsManyAsAPacketCarries) {
  const std::vector<int> most(253, first_.memfd());
  EXPECT_EQ(Ask(253 * kRegionBytes, most).code, StatusCode::OK);
}

TEST_F(DeviceParts, AreNothingToAServerWithoutDevices) {
  RunningListener running(TestOptions());
  SharedMemoryClient client(running.path());
  client.Send(PartsPacket(2 * kRegionBytes, RegionAccess::kRead, kFirstDevice),
              both_);
  const auto answer = client.Receive().value();
  EXPECT_EQ(answer.code, StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(answer.message, HasSubstr("no device"));
}

TEST_F(DeviceMemory, RegionsAreLimitedByNumberNotByBytes) {
  const FakeAllocation large(kSecondDevice, 32 * kMebibyte);
  devices_.Lend(large);
  const std::string packet = DevicePacket(32 * kMebibyte, RegionAccess::kRead,
                                          kSecondDevice, large.handle());
  const int64_t most = TestOptions().max_regions;
  std::vector<std::string> handles;
  for (int64_t i = 0; i < most; ++i) {
    const auto answer = client_.Ask(packet);
    ASSERT_EQ(answer.code, StatusCode::OK) << answer.message;
    handles.push_back(answer.handle);
  }
  EXPECT_EQ(client_.Ask(packet).code, StatusCode::RESOURCE_EXHAUSTED);
  // Released memory that a request holds still counts.
  const auto held = running_.listener().Find(handles[0]);
  EXPECT_TRUE(client_.Release(handles[0]).in_use);
  EXPECT_EQ(client_.Ask(packet).code, StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(client_.Release(handles[1]).in_use);
  EXPECT_EQ(client_.Ask(packet).code, StatusCode::OK);
  EXPECT_EQ(devices_.open(), most);
}

TEST_F(DeviceMemory, IsNothingToAServerWithoutDevices) {
  const auto cpu = kernels::MakeCpuCorrector(1);
  for (kernels::Corrector* backend :
       {static_cast<kernels::Corrector*>(nullptr), cpu.get()}) {
    SharedMemoryListener::Options options = TestOptions();
    options.backend = backend;
    RunningListener running(options);
    SharedMemoryClient client(running.path());
    const auto answer = client.Ask(Packet());
    EXPECT_EQ(answer.code, StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(answer.message, HasSubstr("no device"));
    const FileDescriptor memfd = MakeMemfd(kRegionBytes);
    EXPECT_EQ(
        client.Register(memfd.get(), kRegionBytes, RegionAccess::kRead).code,
        StatusCode::OK);
  }
}

}  // namespace
}  // namespace counterweight::server
