// Counts of masks that lie anywhere.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/launch_mask.h"
#include "tests/kernels/cuda_on_cpu/copied.h"
#include "tests/kernels/cuda_on_cpu/fake_cuda.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {
namespace {

class MaskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::ForgetErrors();
    fake_cuda::SetSeed(0);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
  }
  void TearDown() override { cudaStreamDestroy(stream_); }

  // Counts a mask of one row that begins `offset` bytes behind an allocation:
  // its tokens, and the first byte that is none.
  std::vector<uint64_t> Count(const std::vector<uint8_t>& mask,
                              int64_t offset) {
    // An allocation of nothing has no address.
    std::vector<uint8_t> bytes(static_cast<size_t>(offset) + 1, 1);
    bytes.insert(bytes.begin() + offset, mask.begin(), mask.end());
    const Copied<uint8_t> there(bytes);
    const Copied<int64_t> bounds({0, static_cast<int64_t>(mask.size())});
    Copied<uint64_t> results({0, kAllBoolean});
    MaskJob job{};
    job.mask = there.device() + offset;
    job.segments.offsets = bounds.device();
    job.num_segments = 1;
    job.row_tokens = results.device();
    job.first_bad = results.device() + 1;
    EXPECT_EQ(LaunchMask(job, stream_), cudaSuccess);
    return results.Read();
  }

  cudaStream_t stream_ = nullptr;
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
