#include "server/log/async_sink.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "spdlog/async_logger.h"
#include "spdlog/details/thread_pool.h"

namespace counterweight::server {

// The sink of the pool's thread.
class AsyncSink::Writer final : public spdlog::sinks::sink {
 public:
  explicit Writer(int fd) : fd_(fd) {}

  void log(const spdlog::details::log_msg& line) override {
    bytes_.clear();
    // After a part of a line, as when a disk is full.
    if (in_line_) bytes_.push_back('\n');
    bytes_.append(line.payload.data(), line.payload.size());
    bytes_.push_back('\n');
    Count(Write(bytes_));
  }
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(
      std::unique_ptr<spdlog::formatter> /*formatter*/) override {}

  // Counts a line that was written or lost.
  void Count(bool written) {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ += 1;
    if (!written) lost_ += 1;
    changed_.notify_all();
  }

  int64_t lost() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lost_;
  }

  // False if `enough(lines done with)` did not become true in time.
  template <typename Enough>
  bool WaitFor(std::chrono::milliseconds timeout, Enough enough) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return enough(done_); });
  }

 private:
  // Writes a whole line at once, which keeps it in one piece in a pipe that has
  // other writers, up to PIPE_BUF bytes.
  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = write(fd_, bytes.data(), bytes.size());
      if (count > 0) {
        bytes.remove_prefix(static_cast<size_t>(count));
        in_line_ = !bytes.empty();
      } else if (count < 0 && errno == EAGAIN) {
        // Another process made it non-blocking.
        pollfd ready{fd_, POLLOUT, 0};
        poll(&ready, 1, -1);
      } else if (count == 0 || errno != EINTR) {
        return false;
      }
    }
    return true;
  }

  const int fd_;
  std::string bytes_;     // of the pool's thread alone, as the next
  bool in_line_ = false;  // the last byte written was not a line's last

  mutable std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  int64_t done_ = 0;
  int64_t lost_ = 0;  // of these, not written
};

namespace {

// Keeps a pool for good: its destructor would wait for a thread that waits for
// the descriptor.
void LeaveBehind(std::shared_ptr<spdlog::details::thread_pool> pool) {
  static std::mutex mutex;
  static auto* const pools =
      new std::vector<std::shared_ptr<spdlog::details::thread_pool>>();
  const std::lock_guard<std::mutex> lock(mutex);
  pools->push_back(std::move(pool));
}

}  // namespace

AsyncSink::AsyncSink(int fd, size_t capacity)
    : writer_(std::make_shared<Writer>(fd)),
      pool_(std::make_shared<spdlog::details::thread_pool>(capacity, 1)),
      queue_(std::make_shared<spdlog::async_logger>(
          "", writer_, pool_, spdlog::async_overflow_policy::overrun_oldest)) {
  queue_->set_level(spdlog::level::trace);
}

AsyncSink::~AsyncSink() {
  if (Drain()) return;
  LeaveBehind(std::move(pool_));
}

void AsyncSink::log(const spdlog::details::log_msg& line) {
  logged_ += 1;
  try {
    queue_->log(line.time, line.source, line.level, line.payload);
  } catch (const std::exception&) {
    writer_->Count(/*written=*/false);
  }
}

void AsyncSink::flush() { Drain(); }

bool AsyncSink::Drain() {
  // Lines leave the queue in the order of their arrival: to the writer, or
  // dropped.
  const int64_t before = logged_;
  return writer_->WaitFor(kFlushTime, [&](int64_t done) {
    return done + static_cast<int64_t>(pool_->overrun_counter()) >= before;
  });
}

int64_t AsyncSink::lines_dropped() const {
  return writer_->lost() + static_cast<int64_t>(pool_->overrun_counter());
}

}  // namespace counterweight::server
