#include "server/call/executor.h"

#include <utility>

namespace counterweight::server {

Executor::Executor(int num_threads) {
  threads_.reserve(num_threads);
  for (int i = 0; i < num_threads; ++i)
    threads_.emplace_back([this] { Work(); });
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

void Executor::Submit(const std::string& peer, std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_[peer].push_back(std::move(task));
    ++waiting_;
  }
  changed_.notify_one();
}

bool Executor::IsWantedByOthers(const std::string& peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return tasks_.size() > (tasks_.contains(peer) ? 1U : 0U);
}

int64_t Executor::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_;
}

void Executor::Work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = Next();
    }
    task();
  }
}

std::function<void()> Executor::Next() {
  auto queue = tasks_.upper_bound(last_peer_);
  if (queue == tasks_.end()) queue = tasks_.begin();
  std::function<void()> task = std::move(queue->second.front());
  queue->second.pop_front();
  --waiting_;
  last_peer_ = queue->first;
  if (queue->second.empty()) tasks_.erase(queue);
  return task;
}

}  // namespace counterweight::server
