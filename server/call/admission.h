// Admission control: limits on the work in flight, and turns among clients.
#ifndef COUNTERWEIGHT_SERVER_CALL_ADMISSION_H_
#define COUNTERWEIGHT_SERVER_CALL_ADMISSION_H_

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

#include "server/call/client.h"

namespace counterweight::server {

// Counts requests and the bytes that they need (input, scratch and output
// together). A request beyond the limits waits in a queue, in which peers take
// turns, and is refused if the queue is full too.
//
// While other peers wait, a peer is not given more than half of the requests or
// of the bytes. A full queue makes room for a peer that waits less than another
// one: the newest request of the peer that waits most is refused. Thread-safe.
class Admission {
 public:
  enum class Verdict : uint8_t {
    kAdmitted,
    kFull,      // no room now
    kTooLarge,  // never: more than the limit of bytes
    kClosed,
  };

  struct Limits {
    int64_t max_requests = 0;
    int64_t max_bytes = 0;
    int64_t max_queued = 0;

    // Limit of the bytes that requests hold while they wait; beside max_bytes,
    // so that a full queue cannot keep a request from being admitted.
    int64_t max_held_bytes() const { return max_bytes / 4; }
    // Limit of the bytes that Lend gives, a part of max_bytes: the rest is for
    // requests, however much memory clients share and leave idle.
    int64_t max_lent_bytes() const { return max_bytes / 2; }
  };

  // Holds bytes and a request's place; releases them when destroyed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket();

    int64_t bytes() const { return bytes_; }

   private:
    friend class Admission;
    enum class Kind : uint8_t { kWork, kAnswer, kLent };

    Admission* admission_ = nullptr;
    Kind kind_ = Kind::kWork;
    std::string peer_;
    int64_t bytes_ = 0;
  };

  // Called with the verdict once, from any thread; `ticket` is empty unless it
  // is kAdmitted.
  using Decide = std::function<void(Verdict verdict, Ticket ticket)>;

  explicit Admission(const Limits& limits) : limits_(limits) {}

  // Decides now, or, if the request has to wait, later: when there is room, at
  // Abandon, at Close, or when the queue gives its place to another peer.
  // `held_bytes` the request has already while it waits. Returns what Abandon
  // takes; 0 if it decided already. Tickets must not outlive this.
  uint64_t Admit(const Client& client, int64_t bytes, int64_t held_bytes,
                 Decide decide);

  // Decides kFull for a request that still waits.
  void Abandon(uint64_t id);

  // Takes more bytes for an admitted request, also after Close. Never waits.
  Verdict Grow(int64_t bytes, Ticket* ticket);

  // Marks the request's work as done and its answer of `bytes` as being sent:
  // releases its place and all other bytes. It stays in flight.
  void BeginAnswer(int64_t bytes, Ticket* ticket);

  // Takes bytes that outlive requests, at most Limits::max_lent_bytes in all.
  // Never waits; does not count as a request in flight.
  Verdict Lend(int64_t bytes, Ticket* ticket);

  // True if another peer waits while this one has more than its part of the
  // requests or of the bytes: one of as many equal parts as there are peers.
  bool IsCrowdingOut(const std::string& peer) const;

  // Requests in flight keep what they have. The new limits decide about those
  // that wait: kTooLarge where they need more bytes than there are now.
  void SetLimits(const Limits& limits);

  // Refuses all requests from now on, waiting ones included.
  void Close();

  // Waits until nothing is in flight, answers included; false if that takes
  // longer than `timeout`.
  bool WaitUntilIdle(std::chrono::nanoseconds timeout);

  // Requests that are computed or send their answers, and requests that wait.
  int64_t requests_in_flight() const;
  int64_t requests_queued() const;
  // Bytes of requests in flight and lent bytes together; lent bytes; bytes of
  // requests that wait.
  int64_t bytes_in_flight() const;
  int64_t lent_bytes() const;
  int64_t held_bytes() const;

 private:
  struct Waiter {
    uint64_t id;
    int64_t bytes;
    int64_t held_bytes;
    Decide decide;
  };
  // The requests of one peer that wait.
  struct Queue {
    std::map<std::string, std::deque<Waiter>> by_name;  // none empty
    std::string last_name;                              // served last
    int64_t requests = 0;
    int64_t held_bytes = 0;
  };
  // Holdings of one peer's requests in flight.
  struct Holding {
    int64_t requests = 0;
    int64_t bytes = 0;
  };
  using Queues = std::map<std::string, Queue>;
  using Decision = std::pair<Decide, Ticket>;

  bool HasRoom(int64_t requests, int64_t bytes) const;
  // True if another request of `bytes` would exceed half of the limits for the
  // peer.
  bool ExceedsHalf(const std::string& peer, int64_t bytes) const;
  void Add(Ticket::Kind kind, const std::string& peer, int64_t bytes,
           int64_t requests);
  Ticket Take(Ticket::Kind kind, const std::string& peer, int64_t bytes);
  // Undoes Take, then admits those who fit now.
  void Release(const Ticket& ticket);
  void AdmitWaiting();
  // Takes the next waiter out, if there is room for it.
  bool NextDecision(Decision* decision);
  Queues::iterator NextQueue();
  // Makes room in the queue for one more waiter of `peer` by refusing waiters
  // of others. False if the newcomer is the one to refuse.
  bool MakeQueueRoom(const std::string& peer, int64_t held_bytes,
                     std::vector<Decide>* refused);
  Decide RemoveNewest(Queues::iterator queue);
  // Removes the first waiter for which `is_wanted` is true; null if none is.
  template <typename Predicate>
  Decide RemoveFirst(const Predicate& is_wanted);
  Waiter Remove(Queues::iterator queue,
                std::map<std::string, std::deque<Waiter>>::iterator name,
                const std::deque<Waiter>::iterator& waiter);

  mutable std::mutex mutex_;  // guards all below
  Limits limits_;
  std::condition_variable idle_;
  bool closed_ = false;
  int64_t requests_ = 0;
  int64_t answers_ = 0;
  int64_t bytes_ = 0;
  int64_t lent_bytes_ = 0;
  std::map<std::string, Holding> holdings_;  // by peer, none empty
  Queues waiting_;                           // by peer, none empty
  std::string last_peer_;                    // served last
  uint64_t next_id_ = 1;
  int64_t queued_ = 0;
  int64_t held_bytes_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_ADMISSION_H_
