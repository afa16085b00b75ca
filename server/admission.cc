#include "server/admission.h"

#include <utility>

namespace counterweight::server {

Admission::Ticket::Ticket(Ticket&& other) noexcept
    : admission_(std::exchange(other.admission_, nullptr)),
      bytes_(other.bytes_) {}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  std::swap(admission_, other.admission_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Admission::Ticket::~Ticket() {
  if (admission_ != nullptr) admission_->Release(bytes_);
}

Admission::Verdict Admission::Admit(int64_t bytes, Ticket* ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return Verdict::kClosed;
  if (requests_ >= max_requests_ || bytes > max_bytes_ - bytes_) {
    return Verdict::kFull;
  }
  ++requests_;
  bytes_ += bytes;
  Ticket fresh;
  fresh.admission_ = this;
  fresh.bytes_ = bytes;
  *ticket = std::move(fresh);
  return Verdict::kAdmitted;
}

void Admission::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
}

bool Admission::WaitUntilIdle(std::chrono::nanoseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return idle_.wait_for(lock, timeout, [this] { return requests_ == 0; });
}

int64_t Admission::requests_in_flight() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return requests_;
}

void Admission::Release(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --requests_;
  bytes_ -= bytes;
  // Inside the lock: whoever waits may destroy this as soon as it may go on.
  if (requests_ == 0) idle_.notify_all();
}

}  // namespace counterweight::server
