// Threads that share the tasks of several concurrent jobs.
#ifndef COUNTERWEIGHT_KERNELS_CPU_THREAD_POOL_H_
#define COUNTERWEIGHT_KERNELS_CPU_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace counterweight::kernels {

// Thread-safe. The calling thread works too: a pool of n has n - 1 threads.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs task(0) ... task(count - 1) in any order and returns when all are
  // done. The calling thread begins with the first, others with the last, so
  // that neighbours mostly run on one thread and share its cache.
  // On the calling thread they run with its floating-point modes, on others
  // with the default ones. Tasks must not throw. REQUIRES: count < 2^31
  void Run(int64_t count, const std::function<void(int64_t)>& task);

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

 private:
  // Threads take indices without the lock: a task can take a microsecond, and
  // threads that wait for a lock sleep.
  struct Job {
    const std::function<void(int64_t)>& task;
    const int64_t count;
    // Indices taken from the front, and 2^32 times those from the back. Each
    // thread adds one in vain when none is left.
    std::atomic<uint64_t> taken = 0;
    std::atomic<int64_t> workers = 0;  // at it; changed under mutex_
    std::condition_variable left;      // its last worker

    // Runs one index; false if none is left.
    bool RunNext(bool is_caller);
  };

  void Serve();
  // Works on `job`, until it has no index left or while it is the only one.
  void ServeJob(Job& job, std::unique_lock<std::mutex>& lock);
  // Returns when there is a job, or after some 50 us.
  void LookForJob() const;
  void Remove(Job& job);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Job*> jobs_;  // those with indices left; guarded by mutex_
  std::atomic<size_t> num_jobs_ = 0;  // their number
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_THREAD_POOL_H_
