// Calls with a request that has not arrived yet.
#ifndef COUNTERWEIGHT_SERVER_CALL_ARRIVALS_H_
#define COUNTERWEIGHT_SERVER_CALL_ARRIVALS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace counterweight::server {

// Bounds the calls that have begun and are not queued yet: a client may open
// any number and send nothing. When all places are taken, one call ends for the
// new one: the newest call of the peer with most calls, or, within a peer (its
// clients may share an address), of the connection with most calls. A
// connection that is alone loses its own oldest call, if that has been silent
// for kSilence; a connection without calls ends the peer's oldest. Thread-safe.
class Arrivals {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kSilence{250};

  explicit Arrivals(int64_t max_calls) : max_calls_(max_calls) {}
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  // Takes a place for a call of a peer's connection, each by any name, that
  // begins at `now`, until the result is destroyed. Null if no place is left
  // and no call can end. `give_way` is called at most once, from any thread,
  // never under a lock of this; the call must end then. The result may outlive
  // this.
  std::shared_ptr<void> Enter(const std::string& peer,
                              const std::string& connection, Time now,
                              std::function<void()> give_way);

  // Calls beyond a lower bound stay.
  void SetMaxCalls(int64_t max_calls) { max_calls_ = max_calls; }

  int64_t calls() const;

 private:
  // A peer's calls, the newest last.
  struct Call {
    std::string connection;
    Time since;
    std::function<void()> give_way;
  };
  using Calls = std::map<uint64_t, Call>;
  struct State {
    std::mutex mutex;                    // guards the rest
    std::map<std::string, Calls> peers;  // none empty
    int64_t calls = 0;
    uint64_t next_id = 1;
  };
  // Takes a call out for a newcomer; its give_way, or none.
  static std::function<void()> Displace(State* state, const std::string& peer,
                                        const std::string& connection,
                                        Time now);
  // The newest call of the connection with most calls, if that has more than
  // `connection` would have; otherwise the end.
  static Calls::iterator Crowding(Calls* calls, const std::string& connection);
  static void Leave(State* state, const std::string& peer, uint64_t id);

  std::atomic<int64_t> max_calls_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_ARRIVALS_H_
