#include "server/entry.h"

#include <chrono>
#include <utility>

namespace counterweight::server {

Share::Share(const ServiceContext* service, Admission::Ticket ticket,
             int64_t bytes)
    : service_(*service), ticket_(std::move(ticket)), bytes_(bytes) {
  service_.metrics->requests_in_flight.Increment();
  service_.metrics->bytes_in_flight.Increment(static_cast<double>(bytes_));
}

Share::~Share() {
  service_.metrics->requests_in_flight.Decrement();
  service_.metrics->bytes_in_flight.Decrement(static_cast<double>(bytes_));
}

Admission::Verdict Share::Grow(int64_t bytes) {
  const Admission::Verdict verdict = service_.admission->Reserve(bytes, &more_);
  if (verdict != Admission::Verdict::kAdmitted) return verdict;
  bytes_ += bytes;
  service_.metrics->bytes_in_flight.Increment(static_cast<double>(bytes));
  return verdict;
}

void Entry::Begin(const ServiceContext* service, const Request& request,
                  Decided decided) {
  service_ = service;
  const auto decide = [service, bytes = request.bytes,
                       decided = std::move(decided)](Admission::Verdict verdict,
                                                     Admission::Ticket ticket) {
    if (verdict != Admission::Verdict::kAdmitted) {
      decided(verdict, nullptr);
      return;
    }
    auto share = std::make_shared<Share>(service, std::move(ticket), bytes);
    service->executor->Submit([decided, share = std::move(share)]() mutable {
      decided(Admission::Verdict::kAdmitted, std::move(share));
    });
  };
  id_ = service->admission->Admit(request.client, request.bytes,
                                  request.held_bytes, decide);
  if (id_ == 0) return;
  const auto wait =
      std::chrono::duration<double>(service->config.max_queue_seconds);
  timer_.Set(std::chrono::system_clock::now() +
                 std::chrono::duration_cast<std::chrono::nanoseconds>(wait),
             [admission = service->admission, id = id_,
              use = service->uses->Use()](bool is_due) {
               if (is_due) admission->Abandon(id);
             });
}

void Entry::Abandon() {
  if (id_ != 0) service_->admission->Abandon(id_);
}

}  // namespace counterweight::server
