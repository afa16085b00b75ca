#include "server/call/executor.h"

#include <algorithm>
#include <utility>

namespace counterweight::server {
namespace {

// Parsing and computing this much takes about a tenth of a second.
constexpr int64_t kLongBytes = int64_t{64} << 20;

}  // namespace

Executor::Executor(int num_threads) : max_long_(std::max(1, num_threads - 1)) {
  threads_.reserve(num_threads);
  for (int i = 0; i < num_threads; ++i)
    threads_.emplace_back([this] { Work(); });
}

Executor::Length Executor::LengthOf(int64_t bytes) {
  return bytes > kLongBytes ? Length::kLong : Length::kShort;
}

void Executor::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Executor::Submit(const std::string& peer, Length length,
                      std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queues_[peer].push_back({length, std::move(task)});
    ++waiting_;
  }
  changed_.notify_one();
}

void Executor::Continue(const std::string& peer, Length length,
                        std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queues_[peer].push_front({length, std::move(task)});
    ++waiting_;
  }
  changed_.notify_one();
}

bool Executor::IsTurnOver(const std::string& peer, Clock::time_point start) {
  if (Clock::now() - start < kTurn) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return queues_.size() > (queues_.contains(peer) ? 1U : 0U);
}

int64_t Executor::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_;
}

void Executor::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    auto queue = queues_.end();
    changed_.wait(lock, [&] {
      queue = Next();
      return queue != queues_.end() || (stopping_ && queues_.empty());
    });
    if (queue == queues_.end()) return;
    Task task = Take(queue);
    lock.unlock();
    task.run();
    task.run = nullptr;  // destroyed without the lock
    lock.lock();
    if (task.length == Length::kLong) {
      --running_long_;
      // This thread may find another task whose turn it is.
      changed_.notify_one();
    }
  }
}

Executor::Queues::iterator Executor::Next() {
  auto queue = queues_.upper_bound(last_peer_);
  for (size_t i = 0; i < queues_.size(); ++i, ++queue) {
    if (queue == queues_.end()) queue = queues_.begin();
    if (queue->second.front().length == Length::kShort ||
        running_long_ < max_long_) {
      return queue;
    }
  }
  return queues_.end();
}

Executor::Task Executor::Take(Queues::iterator queue) {
  Task task = std::move(queue->second.front());
  queue->second.pop_front();
  --waiting_;
  if (task.length == Length::kLong) ++running_long_;
  last_peer_ = queue->first;
  if (queue->second.empty()) queues_.erase(queue);
  // Threads that wait for the end.
  if (stopping_ && queues_.empty()) changed_.notify_all();
  return task;
}

}  // namespace counterweight::server
