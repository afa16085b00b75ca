// Device memory of other processes in parts: mapped, computed on, and refused.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/placed_run.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

constexpr int64_t kPart = 8192;

// An allocation that a process has exported, filled with one byte.
class Exported {
 public:
  explicit Exported(int device, uint8_t fill = 0, int64_t size = kPart)
      : file_(memfd_create(("fake_cuda_part_" + std::to_string(device)).c_str(),
                           MFD_CLOEXEC)) {
    const std::vector<uint8_t> bytes(static_cast<size_t>(size), fill);
    EXPECT_EQ(write(file_, bytes.data(), bytes.size()), size);
  }
  ~Exported() { close(file_); }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;

  int file() const { return file_; }
  std::vector<uint8_t> Bytes() const {
    std::vector<uint8_t> bytes(static_cast<size_t>(kPart));
    EXPECT_EQ(pread(file_, bytes.data(), bytes.size(), 0), kPart);
    return bytes;
  }

 private:
  const int file_;
};

class Parts : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(0);
    cuda_ = MakeFakeCuda(kSmallOptions);
    uuid_ = cuda_->Info().devices[0].uuid;
    files_ = {first_.file(), second_.file()};
  }
  void TearDown() override { EXPECT_TRUE(NothingIsLeft()); }

  static bool NothingIsLeft() {
    const fake_cuda::Census alive = fake_cuda::Alive();
    return alive.reserved_ranges == 0 && alive.imported_handles == 0;
  }

  void* Open(int64_t part_bytes = kPart) {
    return cuda_->OpenDeviceParts(files_, part_bytes, uuid_, &error_);
  }

  const Exported first_{0, 3};
  const Exported second_{0, 5};
  std::vector<int> files_;
  std::unique_ptr<Corrector> cuda_;
  DeviceUuid uuid_{};
  std::string error_;
};

TEST_F(Parts, LieOneBehindAnother) {
  void* const memory = Open();
  ASSERT_NE(memory, nullptr) << error_;
  std::vector<uint8_t> bytes(2 * kPart);
  ASSERT_TRUE(
      cuda_->CopyFromDevice(bytes.data(), memory, bytes.size(), &error_));
  std::vector<uint8_t> expected(2 * kPart, 5);
  std::fill_n(expected.begin(), kPart, uint8_t{3});
  EXPECT_EQ(bytes, expected);
  EXPECT_EQ(cuda_->PlaceOf(memory), MemoryPlace::kDevice);
  cuda_->CloseDeviceMemory(memory);
}

// The handles are gone, but what is mapped stays until it is closed.
TEST_F(Parts, KeepOnlyTheirMappings) {
  void* const memory = Open();
  ASSERT_NE(memory, nullptr) << error_;
  EXPECT_EQ(fake_cuda::Alive().imported_handles, 0);
  EXPECT_EQ(fake_cuda::Alive().reserved_ranges, 1);
  void* const again = Open();
  EXPECT_NE(again, memory);
  cuda_->CloseDeviceMemory(memory);
  uint8_t byte = 0;
  EXPECT_TRUE(cuda_->CopyFromDevice(&byte, again, 1, &error_));
  EXPECT_EQ(byte, 3);
  cuda_->CloseDeviceMemory(again);
}

// A keep mask that spans both parts goes straight into the other process's
// memory.
TEST_F(Parts, AreAnswersPlace) {
  const int64_t tokens = 2 * kPart;
  const OwnedBatch batch(std::vector<Row>(
      2, RowOf(std::vector<float>(static_cast<size_t>(kPart), 0.0f))));
  ASSERT_EQ(batch.view().offsets[2], tokens);
  void* const memory = Open();
  ASSERT_NE(memory, nullptr) << error_;
  Outputs outputs;
  outputs.keep_mask = static_cast<uint8_t*>(memory);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    fake_cuda::SetSeed(seed);
    EXPECT_EQ(cuda_->Correct(WithRules({}), batch.view(), outputs).status,
              CorrectStatus::kOk);
  }
  cuda_->CloseDeviceMemory(memory);
  const std::vector<uint8_t> kept(kPart, 1);
  EXPECT_EQ(first_.Bytes(), kept);
  EXPECT_EQ(second_.Bytes(), kept);
}

TEST_F(Parts, AreRefusedWithAReason) {
  // The client names more than an allocation has.
  EXPECT_EQ(Open(2 * kPart), nullptr);
  EXPECT_EQ(error_,
            "the memory cannot be opened: cuMemMap failed with "
            "CUresult 1");
  EXPECT_TRUE(NothingIsLeft());
  // No multiple of the device's granularity.
  EXPECT_EQ(Open(100), nullptr);
  EXPECT_EQ(error_,
            "the memory cannot be opened: cuMemAddressReserve failed "
            "with CUresult 1");
  // The second descriptor is no memory of a device.
  const int pipe_or_file = memfd_create("something else", MFD_CLOEXEC);
  files_[1] = pipe_or_file;
  EXPECT_EQ(Open(), nullptr);
  EXPECT_EQ(error_,
            "the memory cannot be opened: "
            "cuMemImportFromShareableHandle failed with CUresult 1");
  EXPECT_TRUE(NothingIsLeft());
  close(pipe_or_file);
  const Exported elsewhere(1);
  files_[1] = elsewhere.file();
  EXPECT_EQ(Open(), nullptr);
  EXPECT_EQ(error_, "the memory lies on another device than its uuid says");
  EXPECT_TRUE(NothingIsLeft());
  uuid_[0] ^= 1;
  EXPECT_EQ(Open(), nullptr);
  EXPECT_EQ(error_, "the server does not compute on that device");
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// Whichever call fails, nothing stays mapped and the next one succeeds.
TEST_F(Parts, AreClosedAfterAnError) {
  for (const char* api :
       {"cudaSetDevice", "cudaGetDriverEntryPointByVersion",
        "cuMemAddressReserve", "cuMemImportFromShareableHandle",
        "cuMemGetAllocationPropertiesFromHandle", "cuMemMap",
        "cuMemSetAccess"}) {
    for (const int64_t call : {1, 2}) {
      fake_cuda::ForgetErrors();
      fake_cuda::FailCall(api, call, cudaErrorUnknown);
      error_.clear();
      void* const memory = Open();
      if (memory != nullptr) {
        // Only the first call of some happens.
        EXPECT_EQ(call, 2) << api;
        cuda_->CloseDeviceMemory(memory);
      } else {
        EXPECT_NE(error_, "") << api;
      }
      EXPECT_TRUE(NothingIsLeft()) << api << " " << call;
    }
  }
  fake_cuda::ForgetErrors();
  void* const memory = Open();
  ASSERT_NE(memory, nullptr) << error_;
  cuda_->CloseDeviceMemory(memory);
}

}  // namespace
}  // namespace counterweight::kernels
