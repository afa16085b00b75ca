// Three devices behind one corrector. Answers are those of the CPU backend or
// set by the test.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_FAKE_DEVICES_H_
#define COUNTERWEIGHT_TESTS_KERNELS_FAKE_DEVICES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/devices.h"
#include "tests/testing/batch_builder.h"
#include "tests/testing/random_rows.h"
#include "tests/testing/run.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {

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

// A run with a turn that the test sets.
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
  // Two parts of half the memory.
  void* OpenDeviceParts(std::span<const int> parts, int64_t part_bytes,
                        const DeviceUuid& uuid,
                        std::string* /*error*/) override {
    EXPECT_EQ(uuid, UuidOf(index_));
    EXPECT_EQ(parts.size() * static_cast<size_t>(part_bytes),
              sizeof(seen_.memory));
    ++seen_.opened;
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

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_KERNELS_FAKE_DEVICES_H_
