// The server's log: JSON lines on stderr.
#ifndef COUNTERWEIGHT_SERVER_LOG_REQUEST_LOG_H_
#define COUNTERWEIGHT_SERVER_LOG_REQUEST_LOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "grpcpp/support/status.h"
#include "nlohmann/json_fwd.hpp"
#include "server/log/trace.h"
#include "spdlog/logger.h"

namespace counterweight::server {

// One answered request.
struct RequestRecord {
  std::string_view rpc = "";  // "Correct"
  std::string request_id = "";
  std::string run = "";
  std::string replica = "";
  std::string method = "";  // "token_tis", "config", "verl"
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message;         // the message of a failed request
  std::string_view peer = "";  // "tcp" or "unix"; addresses are private
  std::string token = "";      // the name of the client's token, or empty
  std::optional<Trace> trace = std::nullopt;
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t request_bytes = 0;
  int64_t response_bytes = 0;
  int64_t violations = 0;
  double decode_seconds = 0;
  double queue_seconds = 0;
  double receive_seconds = 0;
  double compute_seconds = 0;
  double encode_seconds = 0;
};

// Thread-safe.
class RequestLog {
 public:
  // `logger` prints messages as they are; see MakeStderrLogger.
  explicit RequestLog(std::shared_ptr<spdlog::logger> logger)
      : logger_(std::move(logger)) {}

  // One line; level error for the server's own failures, info for all others.
  void Request(const RequestRecord& record);

  // One line about anything else: "event", then the fields, an object.
  void Event(spdlog::level::level_enum level, std::string_view event);
  void Event(spdlog::level::level_enum level, std::string_view event,
             const nlohmann::ordered_json& fields);

  // Writes out what was logged so far.
  void Flush() { logger_->flush(); }
  // Lines that MakeStderrLogger's logger dropped; 0 for any other logger.
  int64_t lines_dropped() const;

 private:
  const std::shared_ptr<spdlog::logger> logger_;
};

// Writes bare lines to stderr from `level` on: "debug", "info", "warning",
// "error" or "off". Never waits for stderr but in flush(), which takes a second
// at most and is due before the process ends; see AsyncSink.
std::shared_ptr<spdlog::logger> MakeStderrLogger(const std::string& level);

// Flushes a logger at the end of its scope.
class FlushAtEnd {
 public:
  explicit FlushAtEnd(std::shared_ptr<spdlog::logger> logger)
      : logger_(std::move(logger)) {}
  FlushAtEnd(const FlushAtEnd&) = delete;
  FlushAtEnd& operator=(const FlushAtEnd&) = delete;
  ~FlushAtEnd() { logger_->flush(); }

 private:
  const std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LOG_REQUEST_LOG_H_
