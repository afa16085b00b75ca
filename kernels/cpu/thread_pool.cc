#include "kernels/cpu/thread_pool.h"

#include <chrono>

#include "kernels/float_modes.h"

namespace counterweight::kernels {
namespace {

// Some 10 us.
constexpr int kLooks = 10'000;

// A worker that sleeps wakes 5 to 25 us late, which is half of a small job; the
// next job of a stream, or of a caller with many small batches, arrives sooner.
constexpr auto kIdleLook = std::chrono::microseconds(50);

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this] { Serve(); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t count, const std::function<void(int64_t)>& task) {
  Job job{.task = task, .count = count};
  // Waking a thread costs as much as a small job.
  if (count <= 1 || workers_.empty()) {
    while (job.RunNext(/*is_caller=*/true)) {
    }
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(&job);
    num_jobs_ = jobs_.size();
  }
  wake_.notify_all();
  while (job.RunNext(/*is_caller=*/true)) {
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Remove(job);
  }
  // Workers have begun their last index, and a thread that sleeps wakes late.
  for (int i = 0; i < kLooks && job.workers != 0; ++i) {
  }
  std::unique_lock<std::mutex> lock(mutex_);
  job.left.wait(lock, [&] { return job.workers == 0; });
}

bool ThreadPool::Job::RunNext(bool is_caller) {
  constexpr uint64_t kBack = uint64_t{1} << 32;
  const uint64_t before =
      taken.fetch_add(is_caller ? 1 : kBack, std::memory_order_relaxed);
  const auto front = static_cast<int64_t>(before % kBack);
  const auto back = static_cast<int64_t>(before / kBack);
  if (front + back >= count) return false;
  task(is_caller ? front : count - 1 - back);
  return true;
}

void ThreadPool::Serve() {
  const DefaultFloatModes modes;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    // The job that waited longest: concurrent jobs share threads.
    Job& job = *jobs_.front();
    jobs_.splice(jobs_.end(), jobs_, jobs_.begin());
    ServeJob(job, lock);
    if (!jobs_.empty() || stop_) continue;
    lock.unlock();
    LookForJob();
    lock.lock();
  }
}

void ThreadPool::LookForJob() const {
  const auto end = std::chrono::steady_clock::now() + kIdleLook;
  while (num_jobs_.load(std::memory_order_relaxed) == 0 &&
         std::chrono::steady_clock::now() < end) {
    // The caller's thread may wait for this core.
    std::this_thread::yield();
  }
}

void ThreadPool::ServeJob(Job& job, std::unique_lock<std::mutex>& lock) {
  ++job.workers;
  lock.unlock();
  bool has_more = job.RunNext(/*is_caller=*/false);
  while (has_more && num_jobs_.load(std::memory_order_relaxed) == 1) {
    has_more = job.RunNext(/*is_caller=*/false);
  }
  lock.lock();
  if (!has_more) Remove(job);
  // The waiter destroys the job, but not before it has the lock.
  if (--job.workers == 0) job.left.notify_all();
}

void ThreadPool::Remove(Job& job) {
  jobs_.remove(&job);
  num_jobs_ = jobs_.size();
}

}  // namespace counterweight::kernels
