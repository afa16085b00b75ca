#include "client/cpp/submissions.h"

#include <system_error>
#include <utility>

namespace counterweight::client {

Submissions::~Submissions() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  has_work_.notify_all();
}

std::future<Status> Submissions::Run(std::function<Status()> call) {
  std::packaged_task<Status()> task(std::move(call));
  std::future<Status> future = task.get_future();
  std::unique_lock lock(mutex_);
  has_room_.wait(lock, [this] { return in_flight_ < most_; });
  ++in_flight_;
  waiting_.push(std::move(task));
  // Threads that finished their call wait for this one.
  if (threads_.size() < static_cast<size_t>(in_flight_)) {
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      // Without any thread the call has no one to run it; otherwise it waits.
      if (threads_.empty()) {
        std::packaged_task<Status()> refused([] {
          return Status{.code = StatusCode::kResourceExhausted,
                        .message = "the system refuses to start a thread"};
        });
        waiting_.pop();
        --in_flight_;
        refused();
        return refused.get_future();
      }
    }
  }
  lock.unlock();
  has_work_.notify_one();
  return future;
}

void Submissions::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::packaged_task<Status()> task = std::move(waiting_.front());
    waiting_.pop();
    lock.unlock();
    task();
    lock.lock();
    --in_flight_;
    has_room_.notify_one();
  }
}

}  // namespace counterweight::client
