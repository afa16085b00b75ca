// Several devices behind one corrector: memory of other processes.
#include <array>
#include <cstddef>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/fake_devices.h"

namespace counterweight::kernels {
namespace {

using testing::HasSubstr;

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

TEST_F(DevicesTest, ABatchGoesToItsMemoryInParts) {
  constexpr int64_t kPart = sizeof(Seen::memory) / 2;
  const std::array<int, 2> parts{};
  std::string error;
  void* const memory =
      devices_->OpenDeviceParts(parts, kPart, FakeDevice::UuidOf(4), &error);
  ASSERT_EQ(memory, seen_[2].memory.data());
  // The last bytes of the last part.
  float* const last = seen_[2].memory.data() + seen_[2].memory.size() - 2;
  EXPECT_EQ(Correct({.weights = last}).device, 4);
  devices_->CloseDeviceMemory(memory);
  EXPECT_EQ(seen_[2].closed, 1);
  EXPECT_EQ(Correct({.weights = last}).device, 0);
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

}  // namespace
}  // namespace counterweight::kernels
