#include "server/call/admission.h"

#include <algorithm>
#include <iterator>

namespace counterweight::server {

Admission::Ticket::Ticket(Ticket&& other) noexcept
    : admission_(std::exchange(other.admission_, nullptr)),
      kind_(other.kind_),
      peer_(std::move(other.peer_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  std::swap(admission_, other.admission_);
  std::swap(kind_, other.kind_);
  std::swap(peer_, other.peer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Admission::Ticket::~Ticket() {
  if (admission_ != nullptr) admission_->Release(*this);
}

template <typename Predicate>
Admission::Decide Admission::RemoveFirst(const Predicate& is_wanted) {
  for (auto queue = waiting_.begin(); queue != waiting_.end(); ++queue) {
    auto& names = queue->second.by_name;
    for (auto name = names.begin(); name != names.end(); ++name) {
      auto& waiters = name->second;
      const auto found =
          std::find_if(waiters.begin(), waiters.end(), is_wanted);
      if (found != waiters.end()) return Remove(queue, name, found).decide;
    }
  }
  return nullptr;
}

uint64_t Admission::Admit(const Client& client, int64_t bytes,
                          int64_t held_bytes, Decide decide) {
  Verdict verdict = Verdict::kFull;
  Ticket ticket;
  uint64_t id = 0;
  std::vector<Decide> refused;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
      verdict = Verdict::kClosed;
    } else if (bytes > limits_.max_bytes) {
      verdict = Verdict::kTooLarge;
    } else if (waiting_.empty() && HasRoom(1, bytes)) {
      verdict = Verdict::kAdmitted;
      ticket = Take(Ticket::Kind::kWork, client.peer, bytes);
    } else if (MakeQueueRoom(client.peer, held_bytes, &refused)) {
      id = next_id_++;
      Queue& queue = waiting_[client.peer];
      queue.by_name[client.name].push_back(
          {id, bytes, held_bytes, std::exchange(decide, nullptr)});
      ++queue.requests;
      queue.held_bytes += held_bytes;
      ++queued_;
      held_bytes_ += held_bytes;
    }
  }
  for (const Decide& each : refused) each(Verdict::kFull, Ticket());
  if (decide) {
    decide(verdict, std::move(ticket));
    return 0;
  }
  // This peer may fit now if the others that wait have their half.
  AdmitWaiting();
  return id;
}

void Admission::Abandon(uint64_t id) {
  Decide decide;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    decide =
        RemoveFirst([id](const Waiter& waiter) { return waiter.id == id; });
  }
  if (decide) decide(Verdict::kFull, Ticket());
  // The requests behind it may fit now.
  AdmitWaiting();
}

Admission::Verdict Admission::Grow(int64_t bytes, Ticket* ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > limits_.max_bytes - ticket->bytes_) return Verdict::kTooLarge;
  if (!HasRoom(0, bytes)) return Verdict::kFull;
  Add(ticket->kind_, ticket->peer_, bytes, 0);
  ticket->bytes_ += bytes;
  return Verdict::kAdmitted;
}

void Admission::BeginAnswer(int64_t bytes, Ticket* ticket) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Add(ticket->kind_, ticket->peer_, -ticket->bytes_, -1);
    ticket->kind_ = Ticket::Kind::kAnswer;
    ticket->bytes_ = bytes;
    Add(ticket->kind_, ticket->peer_, bytes, 1);
  }
  AdmitWaiting();
}

Admission::Verdict Admission::Lend(int64_t bytes, Ticket* ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return Verdict::kClosed;
  if (bytes > limits_.max_lent_bytes()) return Verdict::kTooLarge;
  if (bytes > limits_.max_lent_bytes() - lent_bytes_ || !HasRoom(0, bytes)) {
    return Verdict::kFull;
  }
  *ticket = Take(Ticket::Kind::kLent, "", bytes);
  return Verdict::kAdmitted;
}

bool Admission::IsCrowdingOut(const std::string& peer) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool others_wait =
      waiting_.size() > 1 ||
      (waiting_.size() == 1 && waiting_.begin()->first != peer);
  const auto holding = holdings_.find(peer);
  if (!others_wait || holding == holdings_.end()) return false;
  auto peers = static_cast<int64_t>(holdings_.size());
  for (const auto& [each, queue] : waiting_) {
    if (!holdings_.contains(each)) ++peers;
  }
  return holding->second.requests > limits_.max_requests / peers ||
         holding->second.bytes > limits_.max_bytes / peers;
}

void Admission::SetLimits(const Limits& limits) {
  std::vector<Decide> too_large;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    limits_ = limits;
    while (Decide decide = RemoveFirst([&](const Waiter& waiter) {
             return waiter.bytes > limits.max_bytes;
           })) {
      too_large.push_back(std::move(decide));
    }
  }
  for (const Decide& decide : too_large) {
    decide(Verdict::kTooLarge, Ticket());
  }
  AdmitWaiting();
}

void Admission::Close() {
  std::vector<Decide> refused;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    for (auto& [peer, queue] : waiting_) {
      for (auto& [name, waiters] : queue.by_name) {
        for (Waiter& waiter : waiters) {
          refused.push_back(std::move(waiter.decide));
        }
      }
    }
    waiting_.clear();
    queued_ = 0;
    held_bytes_ = 0;
  }
  for (const Decide& decide : refused) decide(Verdict::kClosed, Ticket());
}

bool Admission::WaitUntilIdle(std::chrono::nanoseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return idle_.wait_for(lock, timeout,
                        [this] { return requests_ + answers_ == 0; });
}

int64_t Admission::requests_in_flight() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return requests_ + answers_;
}

int64_t Admission::requests_queued() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queued_;
}

int64_t Admission::bytes_in_flight() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

int64_t Admission::lent_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lent_bytes_;
}

int64_t Admission::held_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return held_bytes_;
}

bool Admission::HasRoom(int64_t requests, int64_t bytes) const {
  return requests <= limits_.max_requests - requests_ &&
         bytes <= limits_.max_bytes - bytes_;
}

bool Admission::ExceedsHalf(const std::string& peer, int64_t bytes) const {
  const auto found = holdings_.find(peer);
  // One request may need more than half.
  if (found == holdings_.end()) return false;
  const Holding& holding = found->second;
  return holding.requests + 1 > limits_.max_requests / 2 ||
         holding.bytes + bytes > limits_.max_bytes / 2;
}

void Admission::Add(Ticket::Kind kind, const std::string& peer, int64_t bytes,
                    int64_t requests) {
  bytes_ += bytes;
  if (kind == Ticket::Kind::kLent) {
    lent_bytes_ += bytes;
    return;
  }
  (kind == Ticket::Kind::kWork ? requests_ : answers_) += requests;
  Holding& holding = holdings_[peer];
  holding.bytes += bytes;
  if (kind == Ticket::Kind::kWork) holding.requests += requests;
  if (holding.requests == 0 && holding.bytes == 0) holdings_.erase(peer);
}

Admission::Ticket Admission::Take(Ticket::Kind kind, const std::string& peer,
                                  int64_t bytes) {
  Ticket ticket;
  ticket.admission_ = this;
  ticket.kind_ = kind;
  ticket.peer_ = peer;
  ticket.bytes_ = bytes;
  Add(kind, peer, bytes, 1);
  return ticket;
}

void Admission::Release(const Ticket& ticket) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Add(ticket.kind_, ticket.peer_, -ticket.bytes_, -1);
  }
  AdmitWaiting();
}

void Admission::AdmitWaiting() {
  std::vector<Decision> decisions;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Decision decision; NextDecision(&decision);) {
      decisions.push_back(std::move(decision));
    }
    // Notifies under the lock: the waiting thread may destroy this as soon as
    // it continues.
    if (requests_ + answers_ == 0) idle_.notify_all();
  }
  for (auto& [decide, ticket] : decisions) {
    decide(Verdict::kAdmitted, std::move(ticket));
  }
}

bool Admission::NextDecision(Decision* decision) {
  const auto queue = NextQueue();
  if (queue == waiting_.end()) return false;
  auto& names = queue->second.by_name;
  auto name = names.upper_bound(queue->second.last_name);
  if (name == names.end()) name = names.begin();
  const auto waiter = name->second.begin();
  // Small requests do not overtake, or a large one would starve.
  if (!HasRoom(1, waiter->bytes)) return false;
  last_peer_ = queue->first;
  queue->second.last_name = name->first;
  Ticket ticket = Take(Ticket::Kind::kWork, queue->first, waiter->bytes);
  *decision = {Remove(queue, name, waiter).decide, std::move(ticket)};
  return true;
}

Admission::Queues::iterator Admission::NextQueue() {
  if (waiting_.empty()) return waiting_.end();
  const auto first = waiting_.upper_bound(last_peer_);
  const auto next_in_turn = [&](auto queue) {
    if (queue != waiting_.end()) ++queue;
    return queue == waiting_.end() ? waiting_.begin() : queue;
  };
  auto queue = first == waiting_.end() ? waiting_.begin() : first;
  for (size_t i = 0; waiting_.size() > 1 && i < waiting_.size(); ++i) {
    auto& names = queue->second.by_name;
    auto name = names.upper_bound(queue->second.last_name);
    if (name == names.end()) name = names.begin();
    if (!ExceedsHalf(queue->first, name->second.front().bytes)) return queue;
    queue = next_in_turn(queue);
  }
  return queue;
}

bool Admission::MakeQueueRoom(const std::string& peer, int64_t held_bytes,
                              std::vector<Decide>* refused) {
  const auto own = waiting_.find(peer);
  const int64_t own_requests =
      1 + (own == waiting_.end() ? 0 : own->second.requests);
  const int64_t own_held =
      held_bytes + (own == waiting_.end() ? 0 : own->second.held_bytes);
  const auto most = [&](int64_t Queue::*what) {
    return std::max_element(waiting_.begin(), waiting_.end(),
                            [what](const auto& a, const auto& b) {
                              return a.second.*what < b.second.*what;
                            });
  };
  const int64_t max_held = limits_.max_held_bytes();
  if (held_bytes > max_held || limits_.max_queued == 0) return false;
  while (held_bytes > max_held - held_bytes_) {
    const auto queue = most(&Queue::held_bytes);
    if (queue->second.held_bytes <= own_held) return false;
    refused->push_back(RemoveNewest(queue));
  }
  if (queued_ < limits_.max_queued) return true;
  const auto queue = most(&Queue::requests);
  if (queue->second.requests <= own_requests) return false;
  refused->push_back(RemoveNewest(queue));
  return true;
}

Admission::Decide Admission::RemoveNewest(Queues::iterator queue) {
  auto& names = queue->second.by_name;
  const auto name = std::max_element(
      names.begin(), names.end(), [](const auto& a, const auto& b) {
        return a.second.back().id < b.second.back().id;
      });
  return Remove(queue, name, std::prev(name->second.end())).decide;
}

Admission::Waiter Admission::Remove(
    Queues::iterator queue,
    std::map<std::string, std::deque<Waiter>>::iterator name,
    const std::deque<Waiter>::iterator& waiter) {
  Waiter removed = std::move(*waiter);
  --queued_;
  held_bytes_ -= removed.held_bytes;
  --queue->second.requests;
  queue->second.held_bytes -= removed.held_bytes;
  name->second.erase(waiter);
  if (name->second.empty()) queue->second.by_name.erase(name);
  if (queue->second.by_name.empty()) waiting_.erase(queue);
  return removed;
}

}  // namespace counterweight::server
