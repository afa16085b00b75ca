// Several devices behind one corrector: the distribution of batches.
#include "kernels/devices.h"

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/fake_devices.h"

namespace counterweight::kernels {
namespace {

TEST_F(DevicesTest, InfoListsAllAsCudaCountsThem) {
  const BackendInfo info = devices_->Info();
  EXPECT_EQ(info.name, "cuda");
  ASSERT_EQ(info.devices.size(), 3U);
  EXPECT_EQ(info.devices[2].index, 4);
  EXPECT_EQ(info.devices[2].uuid, FakeDevice::UuidOf(4));
}

TEST_F(DevicesTest, ABatchGoesWhereTheFewestPositionsAre) {
  const auto a = Begin(100);  // ties go to the first
  const auto b = Begin(30);
  const auto c = Begin(60);
  const auto d = Begin(31);  // 100, 30 + 31, 60
  auto e = Begin(10);        // 100, 61, 60 + 10
  EXPECT_EQ(DeviceOf(a.get()), 0);
  EXPECT_EQ(DeviceOf(b.get()), 2);
  EXPECT_EQ(DeviceOf(c.get()), 4);
  EXPECT_EQ(DeviceOf(d.get()), 2);
  EXPECT_EQ(DeviceOf(e.get()), 4);
}

TEST_F(DevicesTest, WhoIsDoneHasNoWork) {
  auto a = Begin(100);
  EXPECT_EQ(DeviceOf(a.get()), 0);
  a.reset();
  auto b = Begin(1);
  EXPECT_EQ(DeviceOf(b.get()), 0);
  // A run that ended without finishing does not count either.
  b.reset();
  Begin(100).reset();
  EXPECT_EQ(Correct().device, 0);
}

// Its work counts during the run, and not afterwards.
TEST_F(DevicesTest, ABatchThatFollowsItsMemoryIsWork) {
  int64_t bytes = 0;
  std::string error;
  void* const memory =
      devices_->OpenDeviceMemory({}, FakeDevice::UuidOf(0), &bytes, &error);
  Outputs outputs;
  outputs.weights = static_cast<float*>(memory);
  auto follows = devices_->Begin(spec_, small_.view(), outputs, nullptr);
  EXPECT_EQ(DeviceOf(Begin(1).get()), 2) << "the first has work";
  EXPECT_EQ(DeviceOf(follows.get()), 0);
  follows.reset();
  const auto a = Begin(1);  // all devices are idle, and equal
  const auto b = Begin(1);
  const auto c = Begin(1);
  EXPECT_EQ(DeviceOf(a.get()), 0);
  EXPECT_EQ(DeviceOf(b.get()), 2);
  EXPECT_EQ(DeviceOf(c.get()), 4);
  devices_->CloseDeviceMemory(memory);
}

TEST_F(DevicesTest, AFullDevicePassesTheBatchOn) {
  seen_[0].status = seen_[1].status = CorrectStatus::kDeviceFull;
  std::array<float, 2> weights{};
  const CorrectResult result = Correct({.weights = weights.data()});
  EXPECT_EQ(result.status, CorrectStatus::kOk);
  EXPECT_EQ(result.device, 4);
  EXPECT_GT(weights[0], 1.0f);
  // It is tried again: another user of the device may have left.
  seen_[0].status = CorrectStatus::kOk;
  EXPECT_EQ(Correct().device, 0);
}

// Without a thread that waits, too.
TEST_F(DevicesTest, AFullDevicePassesTheTurnOn) {
  seen_[0].turn = seen_[1].turn = Turn::kNever;
  seen_[2].turn = Turn::kLater;
  const auto run = Begin(10);
  EXPECT_EQ(run->TakeTurn(nullptr), Turn::kLater);
  seen_[2].turn = Turn::kNow;
  EXPECT_EQ(run->TakeTurn(nullptr), Turn::kNow);
  EXPECT_EQ(DeviceOf(run.get()), 4);
  for (Seen& each : seen_) each.turn = Turn::kNever;
  EXPECT_EQ(Begin(10)->TakeTurn(nullptr), Turn::kNever);
}

TEST_F(DevicesTest, FullOnesAreEachAskedOnce) {
  for (Seen& each : seen_) each.status = CorrectStatus::kDeviceFull;
  EXPECT_EQ(Correct().status, CorrectStatus::kDeviceFull);
  for (const Seen& each : seen_) EXPECT_EQ(each.corrections, 1);
}

TEST_F(DevicesTest, AFailureIsReportedAndItsDeviceWorksOn) {
  seen_[0].status = CorrectStatus::kDeviceError;
  const CorrectResult failed = Correct();
  EXPECT_EQ(failed.status, CorrectStatus::kDeviceError);
  EXPECT_EQ(failed.device, 0);
  seen_[0].status = CorrectStatus::kOk;
  EXPECT_EQ(Correct().device, 0);
  EXPECT_TRUE(devices_->IsAlive());
}

TEST_F(DevicesTest, ALostDeviceGetsNoMoreWork) {
  seen_[0].status = CorrectStatus::kDeviceLost;
  const CorrectResult failed = Correct();
  EXPECT_EQ(failed.status, CorrectStatus::kDeviceLost);
  EXPECT_EQ(failed.device, 0);
  EXPECT_EQ(Correct().device, 2);
  EXPECT_EQ(seen_[0].corrections, 1);
  EXPECT_TRUE(devices_->IsAlive());
  // Without a usable device every batch fails with the error.
  seen_[1].status = seen_[2].status = CorrectStatus::kDeviceLost;
  EXPECT_FALSE(devices_->IsAlive());
  EXPECT_EQ(Correct().status, CorrectStatus::kDeviceLost);
}

// Devices that have no work at the time are checked too.
TEST_F(DevicesTest, IsAliveFindsLostDevices) {
  seen_[0].status = CorrectStatus::kDeviceLost;
  EXPECT_TRUE(devices_->IsAlive());
  EXPECT_EQ(Correct().device, 2);
  EXPECT_EQ(seen_[0].corrections, 0);
}

TEST_F(DevicesTest, HostMemoryIsTheFirstsAndScratchTheMost) {
  void* const block = devices_->AllocateHost(1);
  EXPECT_EQ(seen_[0].host_blocks, 1);
  devices_->FreeHost(block);
  EXPECT_EQ(seen_[0].host_blocks, 0);
  EXPECT_TRUE(devices_->PinHost(&seen_[0], 5, /*is_read_only=*/true));
  EXPECT_EQ(seen_[0].host_blocks, 1);
  devices_->UnpinHost(&seen_[0]);
  EXPECT_EQ(seen_[0].host_blocks, 0);
  EXPECT_EQ(devices_->ScratchBytes(spec_, small_.view()), 500);
}

TEST_F(DevicesTest, AStopReachesTheDevice) {
  const auto run =
      devices_->Begin(spec_, small_.view(), {}, [] { return true; });
  EXPECT_EQ(run->Finish().status, CorrectStatus::kStopped);
}

// Several threads and CPU backends give the bytes of one backend.
TEST(Devices, ConcurrentBatchesHaveTheBytesOfOneDevice) {
  std::vector<std::unique_ptr<Corrector>> each;
  std::array<Seen, 3> seen;
  for (int i = 0; i < 3; ++i) {
    each.push_back(std::make_unique<FakeDevice>(i, &seen[i]));
  }
  const auto devices = MakeDevicesCorrector(std::move(each));
  const auto alone = MakeCpuCorrector(1);
  const CorrectionSpec spec = BusySpec();
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      Random random(seed);
      for (int i = 0; i < 5; ++i) {
        std::vector<Row> rows;
        for (int row = 0; row < 4; ++row) {
          rows.push_back(RandomRow(random, random.Integer(0, 700), {}));
        }
        const OwnedBatch batch(rows);
        const Corrected expected = RunCorrector(*alone, spec, batch);
        const Corrected actual = RunCorrector(*devices, spec, batch);
        EXPECT_EQ(actual.weights, expected.weights);
        EXPECT_EQ(actual.keep_mask, expected.keep_mask);
        EXPECT_EQ(actual.token_reasons, expected.token_reasons);
        EXPECT_GE(actual.result.device, 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace counterweight::kernels
