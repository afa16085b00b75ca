// Threads that share the tasks of several concurrent jobs.
#ifndef COUNTERWEIGHT_KERNELS_CPU_THREAD_POOL_H_
#define COUNTERWEIGHT_KERNELS_CPU_THREAD_POOL_H_

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
  // done. On the calling thread they run with its floating-point modes, on
  // others with the default ones. Tasks must not throw.
  void Run(int64_t count, const std::function<void(int64_t)>& task);

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

 private:
  struct Job {
    const std::function<void(int64_t)>* task;
    int64_t count;
    int64_t next = 0;     // first index not yet taken
    int64_t running = 0;  // indices taken and not finished
    std::condition_variable done;
  };

  // Takes and runs one index of `job`, which has one left. The lock is held at
  // entry and exit, not while the task runs.
  void RunNext(Job& job, std::unique_lock<std::mutex>& lock);
  void Serve();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Job*> jobs_;  // those with indices left
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_THREAD_POOL_H_
