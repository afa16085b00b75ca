#include "server/call/executor.h"

#include <algorithm>
#include <utility>

namespace counterweight::server {
namespace {

// Parsing and computing this much takes about a tenth of a second.
constexpr int64_t kLongBytes = int64_t{64} << 20;
// A sequence without tokens takes as long as this many bytes of them.
constexpr int64_t kSequenceBytes = 64;

// Returns the first element for which `is_wanted` is true, in turn from the one
// after the key `last`; the end if none is.
template <typename Map, typename Predicate>
typename Map::iterator NextInTurn(Map& map, const std::string& last,
                                  const Predicate& is_wanted) {
  auto next = map.upper_bound(last);
  for (size_t i = 0; i < map.size(); ++i, ++next) {
    if (next == map.end()) next = map.begin();
    if (is_wanted(next)) return next;
  }
  return map.end();
}

}  // namespace

Executor::Executor(int num_threads) : max_long_(std::max(1, num_threads - 1)) {
  threads_.reserve(num_threads);
  for (int i = 0; i < num_threads; ++i)
    threads_.emplace_back([this] { Work(); });
}

Executor::Length Executor::LengthOf(int64_t bytes, int64_t sequences) {
  const bool is_long =
      bytes > kLongBytes || sequences > (kLongBytes - bytes) / kSequenceBytes;
  return is_long ? Length::kLong : Length::kShort;
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

void Executor::Submit(const Client& client, Length length,
                      std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    TasksOf(client, length).push_back({length, next_order_++, std::move(task)});
    ++waiting_;
  }
  changed_.notify_one();
}

void Executor::Continue(const Client& client, Length length,
                        std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    TasksOf(client, length).push_front({length, 0, std::move(task)});
    ++waiting_;
  }
  changed_.notify_one();
}

bool Executor::IsTurnOver(const Client& client, Clock::time_point start) {
  if (Clock::now() - start < kTurn) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto own = queues_.find(client.peer);
  if (own == queues_.end()) return !queues_.empty();
  const Names& names = own->second.by_name;
  return queues_.size() > 1 ||
         names.size() > (names.contains(client.name) ? 1U : 0U);
}

int64_t Executor::waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_;
}

void Executor::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    std::optional<Place> place;
    changed_.wait(lock, [&] {
      place = Next();
      return place || (stopping_ && queues_.empty());
    });
    if (!place) return;
    Task task = Take(*place);
    lock.unlock();
    task.run();
    task.run = nullptr;  // destroyed without the lock
    lock.lock();
    if (task.length == Length::kLong) {
      --running_long_;
      // This thread may find another task that is next.
      changed_.notify_one();
    }
  }
}

std::deque<Executor::Task>& Executor::TasksOf(const Client& client,
                                              Length length) {
  const auto [queue, is_new] = queues_.try_emplace(client.peer);
  // A peer that had no other task waiting is forgotten; the turn that it just
  // had is not.
  if (is_new && client.peer == last_.peer) queue->second.last_name = last_.name;
  Tasks& tasks = queue->second.by_name[client.name];
  return length == Length::kShort ? tasks.shorts : tasks.longs;
}

std::deque<Executor::Task>* Executor::FirstOf(Tasks* tasks) const {
  auto& [shorts, longs] = *tasks;
  const bool may_be_long = !longs.empty() && running_long_ < max_long_;
  if (shorts.empty()) return may_be_long ? &longs : nullptr;
  return may_be_long && longs.front().order < shorts.front().order ? &longs
                                                                   : &shorts;
}

std::optional<Executor::Place> Executor::Next() {
  const auto may_begin = [this](Names::iterator name) {
    return FirstOf(&name->second) != nullptr;
  };
  Names::iterator name;
  const auto queue =
      NextInTurn(queues_, last_.peer, [&](Queues::iterator each) {
        Queue& peer = each->second;
        name = NextInTurn(peer.by_name, peer.last_name, may_begin);
        return name != peer.by_name.end();
      });
  if (queue == queues_.end()) return std::nullopt;
  return Place{queue, name};
}

Executor::Task Executor::Take(const Place& place) {
  const auto [queue, name] = place;
  Tasks& tasks = name->second;
  std::deque<Task>& first = *FirstOf(&tasks);
  Task task = std::move(first.front());
  first.pop_front();
  --waiting_;
  if (task.length == Length::kLong) ++running_long_;
  last_ = {queue->first, name->first};
  queue->second.last_name = name->first;
  if (tasks.shorts.empty() && tasks.longs.empty()) {
    queue->second.by_name.erase(name);
  }
  if (queue->second.by_name.empty()) queues_.erase(queue);
  // Threads that wait for the end.
  if (stopping_ && queues_.empty()) changed_.notify_all();
  return task;
}

}  // namespace counterweight::server
