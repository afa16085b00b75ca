// Worker threads, so that gRPC's own threads never block.
#ifndef COUNTERWEIGHT_SERVER_CALL_EXECUTOR_H_
#define COUNTERWEIGHT_SERVER_CALL_EXECUTOR_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace counterweight::server {

// Runs tasks on a fixed number of threads. Peers take turns, task by task; the
// tasks of one peer are begun in the order in which they came. The queue has no
// bound of its own: Admission and Arrivals bound it. Thread-safe.
class Executor {
 public:
  explicit Executor(int num_threads);
  ~Executor() { Stop(); }

  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs what was submitted to its end. Idempotent.
  void Stop();

  // True if a task of another peer waits: a long task may end and submit its
  // rest.
  bool IsWantedByOthers(const std::string& peer);

  // Tasks that wait for a thread.
  int64_t waiting() const;

  // REQUIRES: not after Stop has begun.
  void Submit(const std::string& peer, std::function<void()> task);

 private:
  void Work();
  // Returns the task whose turn it is. REQUIRES: mutex_ is held and there is
  // one.
  std::function<void()> Next();

  mutable std::mutex mutex_;  // guards the next five
  std::condition_variable changed_;
  std::map<std::string, std::deque<std::function<void()>>> tasks_;  // by peer
  std::string last_peer_;  // served last
  int64_t waiting_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_EXECUTOR_H_
