// How much work is let in at a time, and who waits for it.
#ifndef COUNTERWEIGHT_SERVER_ADMISSION_H_
#define COUNTERWEIGHT_SERVER_ADMISSION_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace counterweight::server {

// Counts requests and the bytes that they need (input, scratch and output
// together). What would exceed the limits waits in a queue, in which clients
// take turns, and is refused where the queue has no room either. Thread-safe.
class Admission {
 public:
  enum class Verdict : uint8_t {
    kAdmitted,
    kFull,      // no room now
    kTooLarge,  // never room: more than the limit of bytes
    kClosed,
  };

  struct Limits {
    int64_t max_requests = 0;
    int64_t max_bytes = 0;
    int64_t max_queued = 0;
  };

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
    int64_t requests_ = 0;
    int64_t bytes_ = 0;
  };

  // Told the verdict once, from any thread; `ticket` is empty unless it is
  // kAdmitted.
  using Decide = std::function<void(Verdict verdict, Ticket ticket)>;

  explicit Admission(const Limits& limits) : limits_(limits) {}

  // Decides now, or, if the request has to wait, later: when there is room, at
  // Abandon or at Close. `client` is whom turns are counted by. `held_bytes`
  // the request has already while it waits; they too are bounded by
  // Limits::max_bytes. Returns what Abandon takes. Tickets must not outlive
  // this.
  uint64_t Admit(const std::string& client, int64_t bytes, int64_t held_bytes,
                 Decide decide);

  // Decides kFull for a request that still waits.
  void Abandon(uint64_t id);

  // More bytes for a request that is in already, or bytes that outlive
  // requests. Never waits; is no request in flight.
  Verdict Reserve(int64_t bytes, Ticket* ticket);

  // From now on nothing is admitted, and nothing waits.
  void Close();

  // Waits until nothing is in flight; false if that takes longer than
  // `timeout`.
  bool WaitUntilIdle(std::chrono::nanoseconds timeout);

  int64_t requests_in_flight() const;
  int64_t bytes_in_flight() const;
  int64_t requests_queued() const;

 private:
  struct Waiter {
    uint64_t id;
    int64_t bytes;
    int64_t held_bytes;
    Decide decide;
  };
  using Decision = std::pair<Decide, Ticket>;

  bool HasRoom(int64_t requests, int64_t bytes) const;
  Ticket Take(int64_t requests, int64_t bytes);
  void Release(int64_t requests, int64_t bytes);
  // Takes the next waiter out, if there is room for it.
  bool NextDecision(Decision* decision);
  void Remove(std::map<std::string, std::deque<Waiter>>::iterator client,
              const std::deque<Waiter>::iterator& waiter);

  const Limits limits_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable idle_;
  bool closed_ = false;
  int64_t requests_ = 0;
  int64_t bytes_ = 0;
  std::map<std::string, std::deque<Waiter>> waiting_;  // by client, none empty
  std::string last_client_;                            // whose turn it was
  uint64_t next_id_ = 1;
  int64_t queued_ = 0;
  int64_t held_bytes_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ADMISSION_H_
