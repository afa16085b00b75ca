// Files that change while the server runs.
#ifndef COUNTERWEIGHT_SERVER_ACCESS_WATCHED_H_
#define COUNTERWEIGHT_SERVER_ACCESS_WATCHED_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "server/base/config_error.h"
#include "server/log/request_log.h"

namespace counterweight::server {

// Identifies the content of a path as far as the file system does. Links are
// followed, so that a mounted secret with a new link has another stamp.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = -1;
  int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
std::vector<FileStamp> StampsOf(const std::vector<std::string>& paths);

// The value that some files have. A wrong file changes nothing: the value that
// was read before stays, and the files are tried again until they are right.
// Look is for one thread at a time, everything else is thread-safe.
template <typename T>
class Watched {
 public:
  // An error's message is a sentence that names the flag and the file.
  using Load = std::function<absl::StatusOr<std::shared_ptr<const T>>()>;

  // `event` begins the names of log lines: EVENT_reloaded and
  // EVENT_reload_failed.
  Watched(std::string event, std::vector<std::string> paths, Load load,
          RequestLog* log)
      : event_(std::move(event)),
        paths_(std::move(paths)),
        load_(std::move(load)),
        log_(log) {}

  // The first look.
  absl::Status Start() {
    stamps_ = StampsOf(paths_);
    absl::StatusOr<std::shared_ptr<const T>> loaded = load_();
    if (!loaded.ok()) return loaded.status();
    Set(*std::move(loaded));
    return absl::OkStatus();
  }

  void Look() {
    // Before the files are read: what changes meanwhile is seen next time.
    std::vector<FileStamp> stamps = StampsOf(paths_);
    if (is_valid_ && stamps == stamps_) return;
    stamps_ = std::move(stamps);
    absl::StatusOr<std::shared_ptr<const T>> loaded = load_();
    std::string error = MessageOf(loaded.status());
    is_valid_ = loaded.ok();
    if (loaded.ok()) {
      Set(*std::move(loaded));
      log_->Event(spdlog::level::info, event_ + "_reloaded");
    } else if (error != last_error_) {
      log_->Event(spdlog::level::warn, event_ + "_reload_failed",
                  {{"error", error}});
    }
    last_error_ = std::move(error);
  }

  std::shared_ptr<const T> Get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return value_;
  }
  // False while the files as they are now are wrong.
  bool is_valid() const { return is_valid_; }

 private:
  void Set(std::shared_ptr<const T> value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    value_.swap(value);
  }

  const std::string event_;
  const std::vector<std::string> paths_;
  const Load load_;
  RequestLog* const log_;
  std::vector<FileStamp> stamps_;
  std::string last_error_;
  std::atomic<bool> is_valid_ = true;
  mutable std::mutex mutex_;  // guards value_
  std::shared_ptr<const T> value_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ACCESS_WATCHED_H_
