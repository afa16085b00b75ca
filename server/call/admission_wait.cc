#include "server/call/admission_wait.h"

#include <chrono>
#include <utility>

#include "server/base/monotonic.h"

namespace counterweight::server {

Reservation::Reservation(const ServiceContext* service,
                         Admission::Ticket ticket, int64_t received_bytes)
    : service_(*service),
      ticket_(std::move(ticket)),
      received_(service->transport->Lend(received_bytes)) {
  service_.metrics->requests_in_flight.Increment();
  service_.metrics->bytes_in_flight.Increment(static_cast<double>(bytes()));
}

Reservation::~Reservation() {
  service_.metrics->requests_in_flight.Decrement();
  service_.metrics->bytes_in_flight.Decrement(static_cast<double>(bytes()));
}

Admission::Verdict Reservation::Grow(int64_t bytes) {
  const Admission::Verdict verdict = service_.admission->Grow(bytes, &ticket_);
  if (verdict == Admission::Verdict::kAdmitted) {
    service_.metrics->bytes_in_flight.Increment(static_cast<double>(bytes));
  }
  return verdict;
}

void Reservation::BeginAnswer(int64_t bytes) {
  service_.metrics->bytes_in_flight.Increment(
      static_cast<double>(bytes - ticket_.bytes()));
  service_.admission->BeginAnswer(bytes, &ticket_);
}

void AdmissionWait::Begin(const ServiceContext* service, const Request& request,
                          Decided decided) {
  const auto decide = [service, client = request.client,
                       received = request.received_bytes,
                       decided = std::move(decided)](Admission::Verdict verdict,
                                                     Admission::Ticket ticket) {
    if (verdict != Admission::Verdict::kAdmitted) {
      decided(verdict, nullptr);
      return;
    }
    auto reservation =
        std::make_shared<Reservation>(service, std::move(ticket), received);
    const Executor::Length length = Executor::LengthOf(reservation->bytes());
    service->executor->Submit(
        client, length,
        [decided, reservation = std::move(reservation)]() mutable {
          decided(Admission::Verdict::kAdmitted, std::move(reservation));
        });
  };
  const uint64_t id = service->admission->Admit(request.client, request.bytes,
                                                request.held_bytes, decide);
  if (id == 0) return;
  const auto wait =
      std::chrono::duration<double>(service->config->Get()->max_queue_seconds);
  timer_.Set(After(wait), [admission = service->admission, id,
                           use = service->uses->Use()](bool is_due) {
    if (is_due) admission->Abandon(id);
  });
  bool is_abandoned = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    service_ = service;
    id_ = id;
    is_abandoned = is_abandoned_;
  }
  if (is_abandoned) service->admission->Abandon(id);
}

void AdmissionWait::Abandon() {
  uint64_t id = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_abandoned_ = true;
    id = id_;
  }
  if (id != 0) service_->admission->Abandon(id);
}

}  // namespace counterweight::server
