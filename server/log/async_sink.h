// A log sink that writes lines to a descriptor from a thread of its own.
#ifndef COUNTERWEIGHT_SERVER_LOG_ASYNC_SINK_H_
#define COUNTERWEIGHT_SERVER_LOG_ASYNC_SINK_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "spdlog/sinks/sink.h"

namespace spdlog {
class async_logger;
namespace details {
class thread_pool;
}  // namespace details
}  // namespace spdlog

namespace counterweight::server {

// Writes each message as it is, as one line, in the order of the calls. Callers
// never wait for the descriptor: if it takes nothing, as a pipe that is not
// read, then the oldest lines that wait are dropped. Thread-safe.
class AsyncSink final : public spdlog::sinks::sink {
 public:
  // The longest that a flush, or the destructor, waits.
  static constexpr std::chrono::milliseconds kFlushTime{1000};

  // At most `capacity` >= 1 lines wait. `fd` stays the caller's, and open for
  // as long as the process lives.
  AsyncSink(int fd, size_t capacity);
  // Flushes. A thread that cannot finish its line stays behind.
  ~AsyncSink() override;

  void log(const spdlog::details::log_msg& line) override;
  // Returns when all that was logged before is written or dropped, or after
  // kFlushTime.
  void flush() override;
  // Messages already have all parts of their line.
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(
      std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

  // Lines that were logged and will not be written.
  int64_t lines_dropped() const;

 private:
  class Writer;

  // True if nothing waits any more.
  bool Drain();

  const std::shared_ptr<Writer> writer_;
  std::shared_ptr<spdlog::details::thread_pool> pool_;
  const std::shared_ptr<spdlog::async_logger> queue_;
  std::atomic<int64_t> logged_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LOG_ASYNC_SINK_H_
