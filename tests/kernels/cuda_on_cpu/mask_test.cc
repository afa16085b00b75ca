// Counts of masks that lie anywhere.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/launch_mask.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {
namespace {

// Device memory.
template <class T>
T* Allocated(size_t count) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
  return static_cast<T*>(memory);
}

class MaskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(0);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
    memory_ = Allocated<uint8_t>(kMost);
    offsets_ = Allocated<int64_t>(2);
    results_ = Allocated<uint64_t>(2);
  }
  void TearDown() override {
    for (void* memory :
         {static_cast<void*>(memory_), static_cast<void*>(offsets_),
          static_cast<void*>(results_)}) {
      cudaFree(memory);
    }
    cudaStreamDestroy(stream_);
  }

  // Counts a mask of one row that begins `offset` bytes behind an allocation:
  // its tokens, and the first byte that is none.
  std::vector<uint64_t> Count(const std::vector<uint8_t>& mask,
                              int64_t offset) {
    const int64_t bounds[] = {0, static_cast<int64_t>(mask.size())};
    cudaMemcpy(memory_ + offset, mask.data(), mask.size(),
               cudaMemcpyHostToDevice);
    cudaMemcpy(offsets_, bounds, sizeof(bounds), cudaMemcpyHostToDevice);
    const uint64_t start[] = {0, kAllBoolean};
    cudaMemcpy(results_, start, sizeof(start), cudaMemcpyHostToDevice);
    MaskJob job{};
    job.mask = memory_ + offset;
    job.segments.offsets = offsets_;
    job.num_segments = 1;
    job.row_tokens = results_;
    job.first_bad = results_ + 1;
    EXPECT_EQ(LaunchMask(job, stream_), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<uint64_t> counted(2);
    cudaMemcpy(counted.data(), results_, sizeof(start), cudaMemcpyDeviceToHost);
    return counted;
  }

  static constexpr size_t kMost = 5000;
  cudaStream_t stream_ = nullptr;
  uint8_t* memory_ = nullptr;
  int64_t* offsets_ = nullptr;
  uint64_t* results_ = nullptr;
};

TEST_F(MaskTest, CountsBytesOfEveryAlignmentAndLength) {
  Random random(1);
  for (int64_t offset = 0; offset < 4; ++offset) {
    for (const size_t length :
         {0, 1, 2, 3, 4, 5, 7, 8, 127, 128, 129, 131, 1023, 1029, 4096}) {
      std::vector<uint8_t> mask(length);
      uint64_t tokens = 0;
      for (uint8_t& byte : mask) {
        byte = random.Chance(0.6) ? 1 : 0;
        tokens += byte;
      }
      EXPECT_EQ(Count(mask, offset),
                (std::vector<uint64_t>{tokens, kAllBoolean}))
          << length << " bytes at " << offset;
    }
  }
}

TEST_F(MaskTest, FindsTheFirstByteThatIsNoMask) {
  for (int64_t offset = 0; offset < 4; ++offset) {
    for (size_t bad = 0; bad < 150; bad += 7) {
      std::vector<uint8_t> mask(150, 1);
      mask[bad] = 2;
      mask.back() = 0xff;
      EXPECT_EQ(Count(mask, offset), (std::vector<uint64_t>{150, bad}))
          << bad << " at " << offset;
    }
  }
}

}  // namespace
}  // namespace counterweight::kernels
