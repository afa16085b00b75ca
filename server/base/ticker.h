// A thread that calls a function periodically.
#ifndef COUNTERWEIGHT_SERVER_BASE_TICKER_H_
#define COUNTERWEIGHT_SERVER_BASE_TICKER_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace counterweight::server {

// Calls `tick` every `period`, from construction to Stop. Thread-safe.
class Ticker {
 public:
  Ticker(std::chrono::nanoseconds period, std::function<void()> tick);
  ~Ticker() { Stop(); }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  // Waits for a tick that has begun; none begins afterwards. Idempotent.
  void Stop();

 private:
  void Run();

  const std::chrono::nanoseconds period_;
  const std::function<void()> tick_;
  std::mutex mutex_;  // guards stopping_
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_TICKER_H_
