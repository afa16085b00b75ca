// Admission of one request.
#ifndef COUNTERWEIGHT_SERVER_CALL_ADMISSION_WAIT_H_
#define COUNTERWEIGHT_SERVER_CALL_ADMISSION_WAIT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "grpcpp/alarm.h"
#include "server/call/admission.h"
#include "server/call/service_context.h"

namespace counterweight::server {

// Holds an admitted request's resources, in admission and in the gauges. Used
// by one thread at a time.
class Reservation {
 public:
  // `received_bytes`: gRPC's memory of the request as received.
  Reservation(const AdmitContext* admit, Admission::Ticket ticket,
              int64_t received_bytes);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  // Takes more of admission's bytes.
  Admission::Verdict Grow(int64_t bytes);
  // To be called when the request as received has been freed.
  void EndReceived() { received_.reset(); }
  // Keeps the bytes of an answer that is being sent, and releases the rest.
  void BeginAnswer(int64_t bytes);
  int64_t bytes() const { return ticket_.bytes(); }

 private:
  const AdmitContext& admit_;
  Admission::Ticket ticket_;
  std::shared_ptr<void> received_;  // until it is freed
};

// Waits for admission, at most --max_queue_seconds. Thread-safe.
class AdmissionWait {
 public:
  struct Request {
    Client client;
    int64_t bytes = 0;
    int64_t held_bytes = 0;
    // The part of held_bytes that gRPC counts too: a message as received.
    int64_t received_bytes = 0;
  };
  // `reservation` is null unless the verdict is kAdmitted.
  using Decided = std::function<void(Admission::Verdict,
                                     std::shared_ptr<Reservation> reservation)>;

  // Calls `decided` once: on the executor if the request is admitted, in
  // whichever thread refused it if not. REQUIRES: called once.
  void Begin(const AdmitContext* admit, const Request& request,
             Decided decided);

  // Refuses the request if it waits or Begin is not called yet.
  void Abandon();

 private:
  std::mutex mutex_;  // guards the next three
  const AdmitContext* admit_ = nullptr;
  uint64_t id_ = 0;
  bool is_abandoned_ = false;
  grpc::Alarm timer_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_ADMISSION_WAIT_H_
