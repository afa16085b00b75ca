// The clock that all open calls share.
#ifndef COUNTERWEIGHT_SERVER_CALL_CALL_CLOCK_H_
#define COUNTERWEIGHT_SERVER_CALL_CALL_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "server/base/ticker.h"

namespace counterweight::server {

// A call with a timeout.
class TimedCall {
 public:
  virtual ~TimedCall() = default;

  // Ends the call if it makes no progress. Called every period, from the
  // clock's thread; must not block.
  virtual void OnTick(std::chrono::steady_clock::time_point now) = 0;
};

// Ticks for every call from Watch to its destruction, on one thread of its own.
// Thread-safe.
class CallClock {
 public:
  explicit CallClock(std::chrono::nanoseconds period);

  // Ticks until the call is destroyed or the result is.
  [[nodiscard]] std::shared_ptr<void> Watch(std::weak_ptr<TimedCall> call);

  // Ends the ticks. Idempotent.
  void Stop() { ticker_.Stop(); }

 private:
  using Calls = std::map<uint64_t, std::weak_ptr<TimedCall>>;

  // The list that a Watch removes itself from, even after the clock is gone.
  struct Watched {
    std::mutex mutex;  // guards the rest
    Calls calls;
    uint64_t next_id = 1;
  };

  void Tick();

  const std::shared_ptr<Watched> watched_ = std::make_shared<Watched>();
  Ticker ticker_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_CALL_CLOCK_H_
