#include "server/call/admission_wait.h"

#include <chrono>
#include <utility>

#include "server/base/monotonic.h"

namespace counterweight::server {

Reservation::Reservation(const AdmitContext* admit, Admission::Ticket ticket,
                         int64_t received_bytes)
    : admit_(*admit),
      ticket_(std::move(ticket)),
      received_(admit->transport->Lend(received_bytes)) {
  admit_.metrics->requests_in_flight.Increment();
  admit_.metrics->bytes_in_flight.Increment(static_cast<double>(bytes()));
}

Reservation::~Reservation() {
  admit_.metrics->requests_in_flight.Decrement();
  admit_.metrics->bytes_in_flight.Decrement(static_cast<double>(bytes()));
}

Admission::Verdict Reservation::Grow(int64_t bytes) {
  const Admission::Verdict verdict = admit_.admission->Grow(bytes, &ticket_);
  if (verdict == Admission::Verdict::kAdmitted) {
    admit_.metrics->bytes_in_flight.Increment(static_cast<double>(bytes));
  }
  return verdict;
}

void Reservation::BeginAnswer(int64_t bytes) {
  admit_.metrics->bytes_in_flight.Increment(
      static_cast<double>(bytes - ticket_.bytes()));
  admit_.admission->BeginAnswer(bytes, &ticket_);
}

void AdmissionWait::Begin(const AdmitContext* admit, const Request& request,
                          Decided decided) {
  const auto decide = [admit, client = request.client,
                       received = request.received_bytes,
                       decided = std::move(decided)](Admission::Verdict verdict,
                                                     Admission::Ticket ticket) {
    if (verdict != Admission::Verdict::kAdmitted) {
      decided(verdict, nullptr);
      return;
    }
    auto reservation =
        std::make_shared<Reservation>(admit, std::move(ticket), received);
    const Executor::Length length = Executor::LengthOf(reservation->bytes());
    admit->executor->Submit(
        client, length,
        [decided, reservation = std::move(reservation)]() mutable {
          decided(Admission::Verdict::kAdmitted, std::move(reservation));
        });
  };
  const uint64_t id = admit->admission->Admit(request.client, request.bytes,
                                              request.held_bytes, decide);
  if (id == 0) return;
  const auto wait =
      std::chrono::duration<double>(admit->config->Get()->max_queue_seconds);
  timer_.Set(After(wait), [admission = admit->admission, id,
                           use = admit->uses->Use()](bool is_due) {
    if (is_due) admission->Abandon(id);
  });
  bool is_abandoned = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    admit_ = admit;
    id_ = id;
    is_abandoned = is_abandoned_;
  }
  if (is_abandoned) admit->admission->Abandon(id);
}

void AdmissionWait::Abandon() {
  uint64_t id = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_abandoned_ = true;
    id = id_;
  }
  if (id != 0) admit_->admission->Abandon(id);
}

}  // namespace counterweight::server
