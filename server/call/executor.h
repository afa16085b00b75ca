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
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/call/client.h"

namespace counterweight::server {

// Runs tasks on a fixed number of threads. Peers take turns, task by task, and
// so do the names of one peer; the tasks of one name are begun in the order of
// their arrival, as far as there are threads for them. Long tasks never have
// all threads, if there is more than one: a short one waits for short ones
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

  // Returns the length of the tasks of a request that has `bytes` reserved. An
  // empty sequence takes time without bytes.
  static Length LengthOf(int64_t bytes, int64_t sequences = 0);

  // Runs what was submitted to its end. Idempotent.
  void Stop();

  // True if a task of another client waits and this client's task, which began
  // at `start`, has run for kTurn: it is to end and to submit its rest with
  // Continue. A short task that yields would wait for a long one each time.
  bool IsTurnOver(const Client& client, Clock::time_point start);

  // Tasks that wait for a thread.
  int64_t waiting() const;

  // REQUIRES: not after Stop has begun.
  void Submit(const Client& client, Length length, std::function<void()> task);
  // The same for the rest of a task, which precedes the client's other tasks:
  // what has begun holds memory until its end.
  void Continue(const Client& client, Length length,
                std::function<void()> task);

 private:
  struct Task {
    Length length;
    uint64_t order;  // of submission; 0: a rest, before all others
    std::function<void()> run;
  };
  // The tasks of one name that wait, by length.
  struct Tasks {
    std::deque<Task> shorts;
    std::deque<Task> longs;
  };
  using Names = std::map<std::string, Tasks>;
  // The tasks of one peer that wait.
  struct Queue {
    Names by_name;          // none is empty
    std::string last_name;  // served last
  };
  using Queues = std::map<std::string, Queue>;  // by peer
  // Where a task waits.
  struct Place {
    Queues::iterator queue;
    Names::iterator name;
  };

  void Work();
  // REQUIRES, these three: mutex_ is held.
  std::deque<Task>& TasksOf(const Client& client, Length length);
  // Returns those tasks with a first one that is next, if any may begin.
  std::deque<Task>* FirstOf(Tasks* tasks) const;
  // Returns the place that is next and has a first task that may begin, if any.
  std::optional<Place> Next();
  Task Take(const Place& place);

  const int max_long_;        // long tasks that run at a time
  mutable std::mutex mutex_;  // guards the next seven
  std::condition_variable changed_;
  Queues queues_;  // none is empty
  Client last_;    // served last
  int64_t waiting_ = 0;
  uint64_t next_order_ = 1;
  int running_long_ = 0;  // long tasks
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// Lets one task wait for an event without a thread. Thread-safe.
class Resumer {
 public:
  // Keeps `resume` for the next Wake and returns true; the task then returns.
  // Returns false if Wake was called meanwhile; the task then continues.
  bool Wait(std::function<void()> resume) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(is_woken_, false)) return false;
    resume_ = std::move(resume);
    return true;
  }

  // Calls `resume` of the task that waits; if none waits, the next does not.
  void Wake() {
    std::function<void()> resume;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_woken_ = !resume_;
      resume.swap(resume_);
    }
    if (resume) resume();
  }

 private:
  std::mutex mutex_;  // guards the rest
  bool is_woken_ = false;
  std::function<void()> resume_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_EXECUTOR_H_
