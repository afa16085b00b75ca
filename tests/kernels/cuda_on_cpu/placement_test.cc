// Memory's placement for kernels and copies.
#include "kernels/cuda/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/kernels/cuda_on_cpu/placed_run.h"
#include "tests/testing/specs.h"

namespace counterweight::kernels {
namespace {

using ::testing::UnorderedElementsAre;

class PlacementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(0);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
    on_device_ = static_cast<char*>(memory);
  }
  void TearDown() override { cudaFree(on_device_); }

  static Placement Find(const void* memory, int device = 0) {
    Placement placement{};
    EXPECT_EQ(FindPlacement(memory, sizeof(float), device, &placement),
              cudaSuccess);
    return placement;
  }

  static constexpr size_t kBytes = 64;
  char* on_device_ = nullptr;
};

TEST_F(PlacementTest, IsWhoseMemoryItIs) {
  EXPECT_EQ(Find(on_device_), Placement::kHere);
  EXPECT_EQ(Find(on_device_ + kBytes - 16), Placement::kHere);
  EXPECT_EQ(Find(on_device_, 1), Placement::kReachable);
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 1, cudaHostAllocPortable), cudaSuccess);
  EXPECT_EQ(Find(pinned), Placement::kReachable);
  cudaFreeHost(pinned);
  const std::array<char, 16> pageable{};
  EXPECT_EQ(Find(pageable.data()), Placement::kPageable);
}

// A client's shared memory crosses the bus without a copy on the host.
TEST_F(PlacementTest, PinnedMemoryOfOthersIsCopiedDirectly) {
  const auto cuda = MakeFakeCuda(kSmallOptions);
  std::vector<float> of_client(100);
  const size_t bytes = of_client.size() * sizeof(float);
  EXPECT_EQ(Find(of_client.data()), Placement::kPageable);
  ASSERT_TRUE(cuda->PinHost(of_client.data(), bytes, /*is_read_only=*/true));
  EXPECT_EQ(Find(of_client.data()), Placement::kReachable);
  EXPECT_EQ(Find(&of_client.back()), Placement::kReachable);
  EXPECT_EQ(Find(of_client.data() + of_client.size()), Placement::kPageable);
  EXPECT_FALSE(cuda->PinHost(of_client.data(), bytes, /*is_read_only=*/true));
  cuda->UnpinHost(of_client.data());
  EXPECT_EQ(Find(of_client.data()), Placement::kPageable);
  fake_cuda::FailCall("cudaHostRegister", 1, cudaErrorMemoryAllocation);
  EXPECT_FALSE(cuda->PinHost(of_client.data(), bytes, /*is_read_only=*/false));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(Find(of_client.data()), Placement::kPageable);
}

// Kernels read memory in place only if it is aligned: a misaligned access ends
// the context for every client. Other memory is copied.
TEST_F(PlacementTest, IsReachableWhereItIsNotAligned) {
  for (size_t offset = 1; offset < 4; ++offset) {
    EXPECT_EQ(Find(on_device_ + offset), Placement::kReachable) << offset;
  }
  // A slice that begins at any row.
  EXPECT_EQ(Find(on_device_ + 4), Placement::kHere);
}

TEST_F(PlacementTest, WhatIsNotAlignedIsCopiedOnTheDevice) {
  const auto cuda = MakeFakeCuda(kSmallOptions);
  const OwnedBatch batch(std::vector<Row>{RowOf({0.5f, -0.5f})});
  const CorrectionSpec spec = WithRules({});
  fake_cuda::StartTrace();
  const Corrected actual = RunPlaced(
      *cuda, spec, batch, {Where::kDeviceUnaligned, Where::kDeviceUnaligned});
  std::vector<size_t> copied;
  for (const fake_cuda::TracedOperation& operation : fake_cuda::StopTrace()) {
    if (operation.traffic != fake_cuda::Traffic::kOnDevice) continue;
    copied.push_back(operation.bytes);
  }
  EXPECT_EQ(actual.result.status, CorrectStatus::kOk)
      << actual.result.device_error;
  EXPECT_EQ(actual.keep_mask, std::vector<uint8_t>({1, 1}));
  // Two tensors and weights; elements of reasons and of masks are aligned.
  EXPECT_THAT(copied, UnorderedElementsAre(8, 8, 8));
}

}  // namespace
}  // namespace counterweight::kernels
