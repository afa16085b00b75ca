#include "server/admission.h"

#include <algorithm>

namespace counterweight::server {

Admission::Ticket::Ticket(Ticket&& other) noexcept
    : admission_(std::exchange(other.admission_, nullptr)),
      requests_(other.requests_),
      bytes_(other.bytes_) {}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  std::swap(admission_, other.admission_);
  std::swap(requests_, other.requests_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Admission::Ticket::~Ticket() {
  if (admission_ != nullptr) admission_->Release(requests_, bytes_);
}

uint64_t Admission::Admit(const std::string& client, int64_t bytes,
                          int64_t held_bytes, Decide decide) {
  Verdict verdict = Verdict::kFull;
  Ticket ticket;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
      verdict = Verdict::kClosed;
    } else if (bytes > limits_.max_bytes) {
      verdict = Verdict::kTooLarge;
    } else if (waiting_.empty() && HasRoom(1, bytes)) {
      verdict = Verdict::kAdmitted;
      ticket = Take(1, bytes);
    } else if (queued_ < limits_.max_queued &&
               held_bytes <= limits_.max_bytes - held_bytes_) {
      const uint64_t id = next_id_++;
      waiting_[client].push_back({id, bytes, held_bytes, std::move(decide)});
      ++queued_;
      held_bytes_ += held_bytes;
      return id;
    }
  }
  decide(verdict, std::move(ticket));
  return 0;
}

void Admission::Abandon(uint64_t id) {
  Decide decide;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto client = waiting_.begin(); client != waiting_.end(); ++client) {
      auto& waiters = client->second;
      const auto found =
          std::find_if(waiters.begin(), waiters.end(),
                       [id](const Waiter& w) { return w.id == id; });
      if (found == waiters.end()) continue;
      decide = std::move(found->decide);
      Remove(client, found);
      break;
    }
  }
  if (decide) decide(Verdict::kFull, Ticket());
  // Whoever waited behind it may fit.
  Release(0, 0);
}

Admission::Verdict Admission::Reserve(int64_t bytes, Ticket* ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_ && requests_ == 0) return Verdict::kClosed;
  if (bytes > limits_.max_bytes) return Verdict::kTooLarge;
  if (!HasRoom(0, bytes)) return Verdict::kFull;
  *ticket = Take(0, bytes);
  return Verdict::kAdmitted;
}

void Admission::Close() {
  std::vector<Decide> refused;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    for (auto& [client, waiters] : waiting_) {
      for (Waiter& waiter : waiters) {
        refused.push_back(std::move(waiter.decide));
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
  return idle_.wait_for(lock, timeout, [this] { return requests_ == 0; });
}

int64_t Admission::requests_in_flight() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return requests_;
}

int64_t Admission::bytes_in_flight() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

int64_t Admission::requests_queued() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queued_;
}

bool Admission::HasRoom(int64_t requests, int64_t bytes) const {
  return requests <= limits_.max_requests - requests_ &&
         bytes <= limits_.max_bytes - bytes_;
}

Admission::Ticket Admission::Take(int64_t requests, int64_t bytes) {
  requests_ += requests;
  bytes_ += bytes;
  Ticket ticket;
  ticket.admission_ = this;
  ticket.requests_ = requests;
  ticket.bytes_ = bytes;
  return ticket;
}

void Admission::Release(int64_t requests, int64_t bytes) {
  std::vector<Decision> decisions;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_ -= requests;
    bytes_ -= bytes;
    for (Decision decision; NextDecision(&decision);) {
      decisions.push_back(std::move(decision));
    }
    // Inside the lock: whoever waits may destroy this as soon as it may go on.
    if (requests_ == 0) idle_.notify_all();
  }
  for (auto& [decide, ticket] : decisions) {
    decide(Verdict::kAdmitted, std::move(ticket));
  }
}

bool Admission::NextDecision(Decision* decision) {
  if (waiting_.empty()) return false;
  auto client = waiting_.upper_bound(last_client_);
  if (client == waiting_.end()) client = waiting_.begin();
  const auto waiter = client->second.begin();
  // Nobody overtakes: a large request would wait for ever behind small ones.
  if (!HasRoom(1, waiter->bytes)) return false;
  last_client_ = client->first;
  *decision = {std::move(waiter->decide), Take(1, waiter->bytes)};
  Remove(client, waiter);
  return true;
}

void Admission::Remove(
    std::map<std::string, std::deque<Waiter>>::iterator client,
    const std::deque<Waiter>::iterator& waiter) {
  --queued_;
  held_bytes_ -= waiter->held_bytes;
  client->second.erase(waiter);
  if (client->second.empty()) waiting_.erase(client);
}

}  // namespace counterweight::server
