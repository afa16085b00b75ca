// The threads that do the work, so that gRPC's own never do.
#ifndef COUNTERWEIGHT_SERVER_EXECUTOR_H_
#define COUNTERWEIGHT_SERVER_EXECUTOR_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace counterweight::server {

// Runs tasks on a fixed number of threads, first come, first served. The queue
// has no bound of its own: Admission bounds it. Thread-safe.
class Executor {
 public:
  explicit Executor(int num_threads);
  ~Executor() { Stop(); }

  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs what was submitted to its end. Idempotent.
  void Stop();

  // REQUIRES: not after Stop has begun.
  void Submit(std::function<void()> task);

 private:
  void Work();

  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_EXECUTOR_H_
