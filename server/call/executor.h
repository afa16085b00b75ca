// Worker threads, so that gRPC's own threads never block.
#ifndef COUNTERWEIGHT_SERVER_CALL_EXECUTOR_H_
#define COUNTERWEIGHT_SERVER_CALL_EXECUTOR_H_

#include <chrono>
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
// tasks of one peer are begun in the order in which they came. Long tasks never
// have all threads, if there is more than one: a short one waits for short ones
// only. The queue has no bound of its own: Admission and Arrivals bound it.
// Thread-safe.
class Executor {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Length : uint8_t { kShort, kLong };

  // The time that a task may take although others wait: long against a batch of
  // a few megabytes, short against the longest.
  static constexpr std::chrono::milliseconds kTurn{50};

  explicit Executor(int num_threads);
  ~Executor() { Stop(); }

  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns the length of the tasks of a request that has `bytes` reserved.
  static Length LengthOf(int64_t bytes);

  // Runs what was submitted to its end. Idempotent.
  void Stop();

  // True if a task of another peer waits and this peer's task, which began at
  // `start`, has run for kTurn: it is to end and to submit its rest with
  // Continue. A short task that gave way would wait for a long one each time.
  bool IsTurnOver(const std::string& peer, Clock::time_point start);

  // Tasks that wait for a thread.
  int64_t waiting() const;

  // REQUIRES: not after Stop has begun.
  void Submit(const std::string& peer, Length length,
              std::function<void()> task);
  // The same for the rest of a task, which comes before the peer's other tasks:
  // what has begun holds memory until its end.
  void Continue(const std::string& peer, Length length,
                std::function<void()> task);

 private:
  struct Task {
    Length length;
    std::function<void()> run;
  };
  using Queues = std::map<std::string, std::deque<Task>>;  // by peer

  void Work();
  // Returns the queue whose turn it is and whose first task may begin, or the
  // end. REQUIRES: mutex_ is held.
  Queues::iterator Next();
  Task Take(Queues::iterator queue);

  const int max_long_;        // long tasks that run at a time
  mutable std::mutex mutex_;  // guards the next six
  std::condition_variable changed_;
  Queues queues_;          // none is empty
  std::string last_peer_;  // served last
  int64_t waiting_ = 0;
  int running_long_ = 0;  // long tasks
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_EXECUTOR_H_
