#include "server/base/heap.h"

#include <malloc.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace counterweight::server {
namespace {

int64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmRSS:" && status >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

// Returns those of this thread.
int64_t PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// Abseil has renamed the functions, and warns of the old names.
template <typename Mutex>
void LockOnce(Mutex* mutex) {
  if constexpr (requires { mutex->lock(); }) {
    mutex->lock();
    mutex->unlock();
  } else {
    mutex->Lock();
    mutex->Unlock();
  }
}

// A block of 32 MiB that is freed lets glibc keep 64 MiB at the end of a heap.
TEST(BoundHeap, AThreadKeepsLittleAtTheEndOfItsHeap) {
#if defined(COUNTERWEIGHT_SANITIZED) || !defined(__GLIBC__)
  GTEST_SKIP() << "not glibc's heap";
#else
  BoundHeap();
  // Volatile: compilers leave out memory that is not read.
  void* volatile large = std::malloc((size_t{32} << 20) - 8192);
  std::free(large);
  const int64_t before = ResidentBytes();
  std::promise<void> freed;
  std::promise<void> end;
  std::thread thread([&] {
    constexpr int64_t kBytes = int64_t{48} << 20;
    constexpr int64_t kBlock = int64_t{64} << 10;
    std::vector<void*> blocks;
    blocks.reserve(kBytes / kBlock);
    for (int64_t bytes = 0; bytes < kBytes; bytes += kBlock) {
      blocks.push_back(std::malloc(kBlock));
      std::memset(blocks.back(), 1, kBlock);
    }
    for (void* block : blocks) std::free(block);
    freed.set_value();
    end.get_future().wait();
  });
  freed.get_future().wait();
  TrimHeap();
  EXPECT_LE(ResidentBytes(), before + (int64_t{8} << 20));
  end.set_value();
  thread.join();
#endif
}

// The blocks are those of a call of 256 x 1,024: its message, what that is read
// into, the answer and the answer's message.
TEST(BoundHeap, ACallTakesTheMemoryOfTheLastOneWithoutPageFaults) {
#if defined(COUNTERWEIGHT_SANITIZED) || !defined(__GLIBC__)
  GTEST_SKIP() << "not glibc's heap";
#else
  BoundHeap();
  int64_t faults = 0;
  std::thread thread([&faults] {
    constexpr int kCalls = 20;
    for (int call = 0; call < kCalls; ++call) {
      const int64_t before = PageFaults();
      std::vector<void*> blocks;
      for (const size_t bytes : {2'359'000, 2'359'000, 1'311'000, 1'311'000}) {
        blocks.push_back(std::malloc(bytes));
        std::memset(blocks.back(), 1, bytes);
      }
      for (void* block : blocks) std::free(block);
      // The first calls find their places.
      if (call >= kCalls / 2) faults += PageFaults() - before;
    }
  });
  thread.join();
  EXPECT_LE(faults, 100);
#endif
}

// A flood of calls makes hundreds of thousands of mutexes; what abseil takes
// for each of them, no heap can give back.
TEST(RecordNoLockOrder, AMutexTakesNoMemoryBesideItself) {
#ifdef COUNTERWEIGHT_SANITIZED
  GTEST_SKIP() << "sanitizers have memory of their own for each mutex";
#else
  RecordNoLockOrder();
  constexpr size_t kMutexes = 100'000;
  std::vector<absl::Mutex> mutexes(kMutexes);
  const int64_t before = ResidentBytes();
  for (absl::Mutex& mutex : mutexes) {
    LockOnce(&mutex);
  }
  EXPECT_LE(ResidentBytes(), before + (int64_t{1} << 20));
#endif
}

// Blocks too small for mappings of their own, all freed but the last: glibc
// then cannot shrink its heap.
TEST(TrimHeap, GivesBackWhatLiesBetweenBlocks) {
#if defined(COUNTERWEIGHT_SANITIZED) || !defined(__GLIBC__)
  GTEST_SKIP() << "not glibc's heap";
#else
  constexpr int64_t kBytes = int64_t{256} << 20;
  constexpr int64_t kBlock = int64_t{64} << 10;
  std::vector<void*> blocks;
  for (int64_t bytes = 0; bytes < kBytes; bytes += kBlock) {
    blocks.push_back(std::malloc(kBlock));
    std::memset(blocks.back(), 1, kBlock);
  }
  void* const last = blocks.back();
  blocks.pop_back();
  const int64_t peak = ResidentBytes();
  for (void* block : blocks) std::free(block);
  ASSERT_GT(ResidentBytes(), peak - kBytes / 4);
  TrimHeap();
  EXPECT_LE(ResidentBytes(), peak - kBytes * 3 / 4);
  std::free(last);
#endif
}

}  // namespace
}  // namespace counterweight::server
