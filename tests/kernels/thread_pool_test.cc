#include "kernels/cpu/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <unistd.h>
#endif

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace counterweight::kernels {
namespace {

// An ample bound for a busy machine.
constexpr auto kPatience = std::chrono::minutes(1);

// A barrier for threads.
class Meeting {
 public:
  explicit Meeting(int expected) : expected_(expected) {}

  // Waits for the others; false if they did not arrive.
  bool Join() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++here_;
    changed_.notify_all();
    return changed_.wait_for(lock, kPatience,
                             [this] { return here_ >= expected_; });
  }

 private:
  const int expected_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
};

TEST(ThreadPool, RunsEachIndexOnce) {
  ThreadPool pool(3);
  EXPECT_EQ(pool.threads(), 3);
  for (const int64_t count : {0, 1, 2, 1000}) {
    std::array<std::atomic<int>, 1000> times{};
    pool.Run(count, [&](int64_t i) { ++times.at(static_cast<size_t>(i)); });
    for (size_t i = 0; i < times.size(); ++i) {
      EXPECT_EQ(times[i], static_cast<int64_t>(i) < count ? 1 : 0) << i;
    }
  }
}

TEST(ThreadPool, TheCallerBeginsWithTheFirstAndWorkersWithTheLast) {
  ThreadPool pool(2);
  Meeting meeting(2);
  std::mutex mutex;
  std::vector<std::vector<int64_t>> taken(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> met = 0;
  pool.Run(9, [&](int64_t i) {
    const bool is_caller = std::this_thread::get_id() == caller;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      taken[is_caller ? 0 : 1].push_back(i);
    }
    if (i == 0 || i == 8) met += meeting.Join() ? 1 : 0;
  });
  EXPECT_EQ(met, 2);
  const auto front = static_cast<int64_t>(taken[0].size());
  for (int64_t i = 0; i < front; ++i) EXPECT_EQ(taken[0][i], i);
  for (int64_t i = 0; i < 9 - front; ++i) EXPECT_EQ(taken[1][i], 8 - i);
}

TEST(ThreadPool, AllThreadsWorkOnOneJob) {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads);
  // Starting threads find a job without a wake-up; later they sleep.
  for (int round = 0; round < 100; ++round) {
    Meeting meeting(kThreads);
    std::atomic<int> met = 0;
    pool.Run(kThreads, [&](int64_t) { met += meeting.Join() ? 1 : 0; });
    ASSERT_EQ(met, kThreads) << round;
  }
}

#if defined(__linux__)
// Workers look for another job for a moment only. The loop below is the other
// user of processor time in this process; its thread is left out.
TEST(ThreadPool, WorkersSleepWhileThereIsNoJob) {
  ThreadPool pool(3);
  Meeting meeting(3);
  pool.Run(3, [&](int64_t) { EXPECT_TRUE(meeting.Join()); });
  const auto end = std::chrono::steady_clock::now() + kPatience;
  bool sleep = false;
  while (!sleep && std::chrono::steady_clock::now() < end) {
    sleep = true;
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/self/task")) {
      if (task.path().filename() == std::to_string(gettid())) continue;
      std::ifstream file(task.path() / "stat");
      std::string stat;
      std::getline(file, stat);
      // The state follows the name, which is in parentheses.
      sleep = sleep && stat.at(stat.rfind(')') + 2) == 'S';
    }
  }
  EXPECT_TRUE(sleep);
}
#endif

// Jobs end while threads still look for their indices.
TEST(ThreadPool, ManyCallersOfSmallJobs) {
  constexpr int kCallers = 3;
  constexpr int64_t kJobs = 2000;
  ThreadPool pool(3);
  std::array<int64_t, kCallers> sums{};
  std::vector<std::thread> callers;
  for (int64_t& sum : sums) {
    callers.emplace_back([&pool, &sum] {
      for (int64_t job = 0; job < kJobs; ++job) {
        std::array<int64_t, 5> results{};
        const int64_t count = job % 5 + 1;
        pool.Run(count, [&](int64_t i) {
          results.at(static_cast<size_t>(i)) += i + 1;
        });
        for (const int64_t result : results) sum += result;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  // 1, 1 + 2, ..., 1 + 2 + 3 + 4 + 5.
  EXPECT_THAT(sums, testing::Each(kJobs / 5 * (1 + 3 + 6 + 10 + 15)));
}

// One worker serves two jobs with busy threads of their own: it takes from them
// in turn, so that no job waits for the end of the other.
TEST(ThreadPool, JobsShareTheWorkers) {
  ThreadPool pool(2);
  std::promise<void> worker_has_first;
  std::promise<void> second_began;
  std::promise<void> enough;
  const std::shared_future<void> release = enough.get_future().share();
  std::string served;  // by the worker
  const auto run = [&](char name) {
    const std::thread::id owner = std::this_thread::get_id();
    bool began = false;
    pool.Run(8, [&, name, owner](int64_t) {
      if (std::this_thread::get_id() == owner) {
        if (name == 'b' && !began) second_began.set_value();
        began = true;
        release.wait();
        return;
      }
      if (served.empty()) {
        worker_has_first.set_value();
        second_began.get_future().wait();
      }
      served += name;
      if (served.size() == 6) enough.set_value();
    });
  };
  std::thread first([&] { run('a'); });
  worker_has_first.get_future().wait();
  run('b');
  first.join();
  // The second job arrived while the worker had the first index of the first
  // one.
  EXPECT_EQ(served.substr(0, 6), "aababa");
}

#if defined(__x86_64__)
// A thread inherits the modes of the one that starts it.
TEST(ThreadPool, WorkersHaveDefaultFloatModes) {
  constexpr unsigned kFlushDenormals = 0x8040;  // FTZ and DAZ
  constexpr unsigned kRoundDown = 0x2000;
  constexpr unsigned kModes = 0xffc0;  // without sticky flags
  constexpr unsigned kDefault = 0x1f80;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushDenormals | kRoundDown);
  ThreadPool pool(2);
  _mm_setcsr(before);
  Meeting meeting(2);
  std::array<unsigned, 2> modes{};
  pool.Run(2, [&](int64_t i) {
    EXPECT_TRUE(meeting.Join());
    modes.at(static_cast<size_t>(i)) = _mm_getcsr() & kModes;
  });
  EXPECT_EQ(modes[0], kDefault);
  EXPECT_EQ(modes[1], kDefault);
}
#endif

}  // namespace
}  // namespace counterweight::kernels
