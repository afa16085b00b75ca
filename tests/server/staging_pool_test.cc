#include "server/call/staging_pool.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/fake_corrector.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// A backend with its own memory: it reports demand, allocates when a test
// permits it, and counts what the test's own thread frees.
class TestMemory final : public kernels::Corrector {
 public:
  kernels::CorrectResult Correct(const kernels::CorrectionSpec& /*spec*/,
                                 const kernels::Batch& /*batch*/,
                                 const kernels::Outputs& /*outputs*/) override {
    return {};
  }
  kernels::BackendInfo Info() const override { return {}; }
  void* AllocateHost(size_t bytes) override {
    if (slow_) {
      wanted_.set_value();
      given_.get_future().wait();
    }
    return std::aligned_alloc(64, bytes);
  }
  void FreeHost(void* memory) override {
    if (std::this_thread::get_id() == owner_) ++freed_here_;
    std::free(memory);
  }

  // Waits for the next allocation's begin.
  void WaitUntilWanted() { wanted_.get_future().wait(); }
  void Give() { given_.set_value(); }
  void BeSlow() { slow_ = true; }
  int freed_here() const { return freed_here_; }

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  int freed_here_ = 0;  // of that thread alone
  std::atomic<bool> slow_ = false;
  std::promise<void> wanted_;
  std::promise<void> given_;
};

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
  // A slightly smaller request fits too; a much smaller one would waste memory.
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

// A failed request does not count as use: the pool keeps nothing for it.
TEST_F(StagingPoolTest, KeepsNoMoreAfterAFailure) {
  StagingPool pool(&backend_);
  EXPECT_EQ(pool.Take(int64_t{1} << 60), nullptr);
  for (int64_t size = 1; size <= 64; ++size) {
    pool.Take(size * kMiB);
    EXPECT_LE(pool.free_bytes(), 64 * kMiB);
  }
}

// A block returns while another is being allocated: the two were never in use
// together, so the pool keeps one of them.
TEST_F(StagingPoolTest, KeepsNoBlockThatAnotherReplaces) {
  TestMemory memory;
  StagingPool pool(&memory);
  std::shared_ptr<std::byte> first = pool.Take(kMiB);
  memory.BeSlow();
  std::thread other([&] { EXPECT_NE(pool.Take(kMiB), nullptr); });
  memory.WaitUntilWanted();
  first.reset();
  EXPECT_EQ(pool.free_bytes(), 0);
  memory.Give();
  other.join();
  EXPECT_EQ(pool.free_bytes(), kMiB);
}

// One of two blocks that were in use together stays; the other is freed without
// another Take.
TEST_F(StagingPoolTest, GivesBackWhatIsMoreThanTheUse) {
  StagingPool pool(&backend_, std::chrono::milliseconds(1));
  const std::shared_ptr<std::byte> kept = pool.Take(10 * kMiB);
  pool.Take(64 * kMiB).reset();
  EXPECT_TRUE(Eventually([&] { return pool.free_bytes() == 0; }));
  EXPECT_EQ(pool.used_bytes(), 10 * kMiB);
}

// A block that was in use for many windows counts as recently used: the thread
// that returns it does not free it.
TEST_F(StagingPoolTest, LongUseCountsToItsEnd) {
  TestMemory memory;
  StagingPool pool(&memory, std::chrono::milliseconds(1));
  std::shared_ptr<std::byte> block = pool.Take(10 * kMiB);
  pool.Take(kMiB).reset();
  // The pool frees it in the second window, when the two are no longer the
  // peak.
  ASSERT_TRUE(Eventually([&] { return pool.free_bytes() == 0; }));
  block.reset();
  EXPECT_EQ(memory.freed_here(), 0);
}

// Huge pages are aligned by mapping more and unmapping the ends.
TEST_F(StagingPoolTest, MapsNothingBehindALargeBlock) {
  StagingPool pool(&backend_);
  for (const int64_t size : {2 * kMiB, 10 * kMiB}) {
    const std::shared_ptr<std::byte> block = pool.Take(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % (2 * kMiB), 0U);
    unsigned char is_there = 0;
    EXPECT_EQ(mincore(block.get() + size, 1, &is_there), -1);
    EXPECT_EQ(errno, ENOMEM);
  }
}

TEST_F(StagingPoolTest, GivesBackWhatNobodyUses) {
  StagingPool pool(&backend_, std::chrono::milliseconds(1));
  pool.Take(kMiB);
  EXPECT_TRUE(Eventually([&] { return pool.free_bytes() == 0; }));
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
