#include "server/staging_pool.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/fake_corrector.h"

namespace counterweight::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class StagingPoolTest : public ::testing::Test {
 protected:
  FakeCorrector backend_{std::make_shared<FakeBackend>()};
};

TEST_F(StagingPoolTest, BlocksAreUsedAgain) {
  StagingPool pool(&backend_);
  std::byte* first = nullptr;
  {
    const std::shared_ptr<std::byte> block = pool.Take(10 * kMiB);
    first = block.get();
    std::memset(first, 1, 10 * kMiB);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0U);
    EXPECT_EQ(pool.used_bytes(), 10 * kMiB);
  }
  EXPECT_EQ(pool.used_bytes(), 0);
  EXPECT_EQ(pool.free_bytes(), 10 * kMiB);
  // A little smaller fits too; much smaller would be a waste.
  EXPECT_EQ(pool.Take(9 * kMiB).get(), first);
  EXPECT_NE(pool.Take(kMiB).get(), first);
}

TEST_F(StagingPoolTest, KeepsNoMoreThanWasUsedAtATime) {
  StagingPool pool(&backend_);
  for (int64_t size = 1; size <= 64; ++size) {
    pool.Take(size * kMiB);
    EXPECT_LE(pool.free_bytes(), 64 * kMiB);
  }
  const std::shared_ptr<std::byte> large = pool.Take(60 * kMiB);
  EXPECT_LE(pool.used_bytes() + pool.free_bytes(), 64 * kMiB);
}

TEST_F(StagingPoolTest, GivesBackWhatNobodyUses) {
  StagingPool pool(&backend_, std::chrono::milliseconds(1));
  pool.Take(kMiB);
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (pool.free_bytes() > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(pool.free_bytes(), 0);
}

TEST_F(StagingPoolTest, SaysWhenThereIsNoMore) {
  StagingPool pool(&backend_);
  EXPECT_EQ(pool.Take(int64_t{1} << 60), nullptr);
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST_F(StagingPoolTest, ThreadsDoNotShareBlocks) {
  StagingPool pool(&backend_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 200; ++i) {
        const std::shared_ptr<std::byte> block = pool.Take(4096);
        std::memset(block.get(), t, 4096);
        EXPECT_EQ(block.get()[4095], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.used_bytes(), 0);
}

}  // namespace
}  // namespace counterweight::server
