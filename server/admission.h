// How much work is let in at a time.
#ifndef COUNTERWEIGHT_SERVER_ADMISSION_H_
#define COUNTERWEIGHT_SERVER_ADMISSION_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace counterweight::server {

// Counts requests and their bytes, and refuses what would exceed the limits or
// comes after Close. Thread-safe.
class Admission {
 public:
  enum class Verdict : uint8_t { kAdmitted, kFull, kClosed };

  // Holds one request's share; gives it back when destroyed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket();

   private:
    friend class Admission;
    Admission* admission_ = nullptr;
    int64_t bytes_ = 0;
  };

  Admission(int64_t max_requests, int64_t max_bytes)
      : max_requests_(max_requests), max_bytes_(max_bytes) {}

  // Fills *ticket if the verdict is kAdmitted. The ticket must not outlive
  // this.
  Verdict Admit(int64_t bytes, Ticket* ticket);

  // From now on nothing is admitted.
  void Close();

  // Waits until nothing is in flight; false if that takes longer than
  // `timeout`.
  bool WaitUntilIdle(std::chrono::nanoseconds timeout);

  int64_t requests_in_flight() const;

 private:
  void Release(int64_t bytes);

  const int64_t max_requests_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable idle_;
  bool closed_ = false;
  int64_t requests_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ADMISSION_H_
