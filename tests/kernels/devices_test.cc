// Several devices behind one corrector: the distribution of batches and of
// memory. Answers are those of the CPU backend or set by the test.
#include "kernels/devices.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/run.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using testing::HasSubstr;

// A device's observations, and the test's settings for it.
struct Seen {
  CorrectStatus status = CorrectStatus::kOk;
  Turn turn = Turn::kNow;
  std::atomic<int> corrections = 0;
  int opened = 0;
  int closed = 0;
  int copies = 0;
  int host_blocks = 0;
  std::array<float, 64> memory{};  // result of OpenDeviceMemory
};

// A run whose turn is the test's to set.
class FakeRun final : public CorrectRun {
 public:
  FakeRun(const Seen& seen, std::unique_ptr<CorrectRun> run)
      : seen_(seen), run_(std::move(run)) {}
  void Advance(int64_t rows, bool has_mask) override {
    run_->Advance(rows, has_mask);
  }
  Turn TakeTurn(std::function<void()> /*wake*/) override { return seen_.turn; }
  CorrectResult Finish() override { return run_->Finish(); }

 private:
  const Seen& seen_;
  const std::unique_ptr<CorrectRun> run_;
};

// The CPU backend as a device.
class FakeDevice final : public Corrector {
 public:
  FakeDevice(int index, Seen* seen) : index_(index), seen_(*seen) {}

  CorrectResult Correct(const CorrectionSpec& spec, const Batch& batch,
                        const Outputs& outputs) override {
    ++seen_.corrections;
    if (seen_.status != CorrectStatus::kOk) return {.status = seen_.status};
    return cpu_->Correct(spec, batch, outputs);
  }
  std::unique_ptr<CorrectRun> Begin(const CorrectionSpec& spec,
                                    const Batch& batch, const Outputs& outputs,
                                    StopRequest stop) override {
    return std::make_unique<FakeRun>(
        seen_, Corrector::Begin(spec, batch, outputs, std::move(stop)));
  }
  int64_t ScratchBytes(const CorrectionSpec&, const Batch&) const override {
    return 100 * (index_ + 1);
  }
  void* AllocateHost(size_t /*bytes*/) override {
    ++seen_.host_blocks;
    return &seen_;
  }
  void FreeHost(void* memory) override {
    EXPECT_EQ(memory, &seen_);
    --seen_.host_blocks;
  }
  bool PinHost(void* memory, size_t bytes, bool is_read_only) override {
    EXPECT_EQ(memory, &seen_);
    EXPECT_EQ(bytes, 5u);
    EXPECT_TRUE(is_read_only);
    ++seen_.host_blocks;
    return true;
  }
  void UnpinHost(void* memory) override { FreeHost(memory); }
  void* OpenDeviceMemory(const IpcHandle& /*handle*/, const DeviceUuid& uuid,
                         int64_t* bytes, std::string* error) override {
    EXPECT_EQ(uuid, UuidOf(index_));
    if (seen_.status == CorrectStatus::kDeviceError) {
      *error = "the device failed";
      return nullptr;
    }
    ++seen_.opened;
    *bytes = sizeof(seen_.memory);
    return seen_.memory.data();
  }
  void CloseDeviceMemory(void* memory) override {
    EXPECT_EQ(memory, seen_.memory.data());
    ++seen_.closed;
  }
  bool CopyFromDevice(void* to, const void* from, size_t bytes,
                      std::string* /*error*/) override {
    ++seen_.copies;
    std::memcpy(to, from, bytes);
    return true;
  }
  bool IsAlive() override { return seen_.status != CorrectStatus::kDeviceLost; }
  BackendInfo Info() const override {
    return {"cuda", "", 0, {{index_, "fake", 1, UuidOf(index_)}}};
  }

  static DeviceUuid UuidOf(int index) {
    return {static_cast<uint8_t>(index + 1)};
  }

 private:
  const int index_;
  Seen& seen_;
  const std::unique_ptr<Corrector> cpu_ = MakeCpuCorrector(1);
};

class DevicesTest : public testing::Test {
 protected:
  std::unique_ptr<CorrectRun> Begin(int64_t positions) {
    OwnedBatch& batch = *batches_.emplace_back(std::make_unique<OwnedBatch>(
        std::vector<Row>{RowOf(std::vector<float>(positions, 0.5f))}));
    return devices_->Begin(spec_, batch.view(), {}, nullptr);
  }
  int DeviceOf(CorrectRun* run) { return run->Finish().device; }
  // Corrects a batch while there is no other.
  CorrectResult Correct(const Outputs& outputs = {}) {
    return devices_->Correct(spec_, small_.view(), outputs);
  }

  std::array<Seen, 3> seen_;
  // Numbered by CUDA's index, not by position in the list.
  const std::unique_ptr<Corrector> devices_ = [this] {
    std::vector<std::unique_ptr<Corrector>> each;
    for (int i = 0; i < 3; ++i) {
      each.push_back(std::make_unique<FakeDevice>(2 * i, &seen_[i]));
    }
    return MakeDevicesCorrector(std::move(each));
  }();
  const CorrectionSpec spec_ = WithWeight(
      {.level = Level::kToken, .bound = Bound::kTruncate, .upper = 2});
  const OwnedBatch small_{{RowOf({0.5f, -0.5f})}};
  std::vector<std::unique_ptr<OwnedBatch>> batches_;
};

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

// Devices that have no work at the time are asked too.
TEST_F(DevicesTest, IsAliveFindsLostDevices) {
  seen_[0].status = CorrectStatus::kDeviceLost;
  EXPECT_TRUE(devices_->IsAlive());
  EXPECT_EQ(Correct().device, 2);
  EXPECT_EQ(seen_[0].corrections, 0);
}

TEST_F(DevicesTest, DeviceMemoryIsItsOwnersToOpenCopyAndClose) {
  int64_t bytes = 0;
  std::string error;
  void* const memory =
      devices_->OpenDeviceMemory({}, FakeDevice::UuidOf(2), &bytes, &error);
  ASSERT_EQ(memory, seen_[1].memory.data());
  EXPECT_EQ(bytes, static_cast<int64_t>(sizeof(seen_[1].memory)));
  seen_[1].memory[3] = 7.0f;
  float copied = 0.0f;
  EXPECT_TRUE(devices_->CopyFromDevice(&copied, &seen_[1].memory[3],
                                       sizeof(copied), &error));
  EXPECT_EQ(copied, 7.0f);
  devices_->CloseDeviceMemory(memory);
  EXPECT_EQ(seen_[1].closed, 1);
  EXPECT_FALSE(devices_->CopyFromDevice(&copied, memory, 4, &error));
  EXPECT_THAT(error, HasSubstr("not open"));
  devices_->CloseDeviceMemory(memory);  // no longer open
  EXPECT_EQ(seen_[0].closed + seen_[1].closed + seen_[2].closed, 1);
}

TEST_F(DevicesTest, MemoryOfADeviceThatIsNotOursHasASentence) {
  int64_t bytes = 0;
  std::string error;
  EXPECT_EQ(
      devices_->OpenDeviceMemory({}, FakeDevice::UuidOf(1), &bytes, &error),
      nullptr);
  EXPECT_THAT(error, HasSubstr("does not compute on"));
  seen_[2].status = CorrectStatus::kDeviceError;
  EXPECT_EQ(
      devices_->OpenDeviceMemory({}, FakeDevice::UuidOf(4), &bytes, &error),
      nullptr);
  EXPECT_EQ(error, "the device failed");
}

TEST_F(DevicesTest, ABatchGoesToItsMemory) {
  int64_t bytes = 0;
  std::string error;
  void* const memory =
      devices_->OpenDeviceMemory({}, FakeDevice::UuidOf(4), &bytes, &error);
  // Opened twice and closed once, it stays open: CUDA counts.
  devices_->OpenDeviceMemory({}, FakeDevice::UuidOf(4), &bytes, &error);
  devices_->CloseDeviceMemory(memory);
  // The last bytes of an output.
  float* const last = seen_[2].memory.data() + seen_[2].memory.size() - 2;
  EXPECT_EQ(Correct({.weights = last}).device, 4);
  EXPECT_GT(last[0], 1.0f);
  // An input of the batch.
  Batch batch = small_.view();
  batch.tensors[static_cast<int>(InputRole::kOld)].data = memory;
  EXPECT_EQ(devices_->Correct(spec_, batch, {}).device, 4);
  // No other device can read it.
  seen_[2].status = CorrectStatus::kDeviceFull;
  EXPECT_EQ(devices_->Correct(spec_, batch, {}).status,
            CorrectStatus::kDeviceFull);
  EXPECT_EQ(seen_[0].corrections + seen_[1].corrections, 0);
  devices_->CloseDeviceMemory(memory);
  EXPECT_EQ(devices_->Correct(spec_, batch, {}).device, 0);
}

TEST_F(DevicesTest, EachInputAndOutputAloneChoosesItsDevice) {
  int64_t bytes = 0;
  std::string error;
  void* const memory =
      devices_->OpenDeviceMemory({}, FakeDevice::UuidOf(4), &bytes, &error);
  for (int role = 0; role < kNumInputRoles; ++role) {
    Batch batch = small_.view();
    batch.tensors[role].data = memory;
    EXPECT_EQ(devices_->Correct(spec_, batch, {}).device, 4) << role;
  }
  Batch masked = small_.view();
  seen_[2].memory.fill(0.0f);
  masked.response_mask = static_cast<uint8_t*>(memory);
  EXPECT_EQ(devices_->Correct(spec_, masked, {}).device, 4);
  EXPECT_EQ(Correct({.weights = static_cast<float*>(memory)}).device, 4);
  EXPECT_EQ(Correct({.keep_mask = static_cast<uint8_t*>(memory)}).device, 4);
  EXPECT_EQ(Correct({.token_reasons = static_cast<uint16_t*>(memory)}).device,
            4);
  EXPECT_EQ(
      Correct({.sequence_reasons = static_cast<uint16_t*>(memory)}).device, 4);
  EXPECT_EQ(Correct({.gradient = static_cast<float*>(memory)}).device, 4);
  EXPECT_EQ(Correct().device, 0);
  // Right behind it; this method does not read it.
  Batch behind = small_.view();
  behind.tensors[static_cast<int>(InputRole::kRef)].data =
      static_cast<std::byte*>(memory) + bytes;
  EXPECT_EQ(devices_->Correct(spec_, behind, {}).device, 0);
  devices_->CloseDeviceMemory(memory);
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
