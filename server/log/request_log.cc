#include "server/log/request_log.h"

#include <unistd.h>

#include <chrono>

#include "nlohmann/json.hpp"
#include "server/base/code_name.h"
#include "server/engine/names.h"
#include "server/log/async_sink.h"
#include "spdlog/fmt/chrono.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

using nlohmann::ordered_json;

// Strings of a request that was refused may have any length. Escaped they have
// at most twice these bytes, so that a line has less than PIPE_BUF, which a
// pipe takes as a whole or not at all.
constexpr size_t kMaxLoggedBytes = 128;
constexpr size_t kMaxLoggedMessageBytes = 1024;
// Longest escape of one byte; shorter texts need no trial.
constexpr size_t kMaxEscapedBytes = 6;

// Upper bound of the fields of a request's line.
constexpr size_t kMaxFields = 23;

// Lines that may wait for stderr: half a second of the highest rates.
constexpr size_t kMaxWaitingLines = 4096;

// "2026-01-31T12:00:00.123456Z".
std::string Now() {
  using std::chrono::microseconds;
  const auto now = std::chrono::time_point_cast<microseconds>(
      std::chrono::system_clock::now());
  const auto fraction = now.time_since_epoch() % std::chrono::seconds(1);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06d}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(now)),
                     fraction.count());
}

ordered_json Begin(spdlog::level::level_enum level, std::string_view event) {
  const auto name = spdlog::level::to_string_view(level);
  return {{"time", Now()},
          {"level", std::string_view(name.data(), name.size())},
          {"event", event}};
}

// ASCII alone, so that no request can split a line or make a terminal show
// another one; bytes that are not UTF-8 become U+FFFD.
std::string ToLine(const ordered_json& entry) {
  return entry.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true,
                    ordered_json::error_handler_t::replace);
}

std::string_view Cut(std::string_view text,
                     size_t max_bytes = kMaxLoggedBytes) {
  text = Shorten(text, max_bytes);
  while (kMaxEscapedBytes * text.size() > 2 * max_bytes &&
         ToLine(text).size() > 2 * max_bytes) {
    text = Shorten(text, text.size() / 4 * 3);
  }
  return text;
}

}  // namespace

void RequestLog::Request(const RequestRecord& record) {
  const bool our_fault = record.code == grpc::StatusCode::INTERNAL ||
                         record.code == grpc::StatusCode::UNKNOWN;
  const auto level = our_fault ? spdlog::level::err : spdlog::level::info;
  if (!logger_->should_log(level)) return;
  ordered_json entry = Begin(level, "request");
  // Fields are copied when the object grows: a fifth of a line's time.
  entry.get_ref<ordered_json::object_t&>().reserve(kMaxFields);
  entry["rpc"] = record.rpc;
  entry["request_id"] = Cut(record.request_id);
  entry["run"] = Cut(record.run);
  entry["replica"] = Cut(record.replica);
  entry["method"] = Cut(record.method);
  entry["code"] = CodeName(record.code);
  entry["peer"] = record.peer;
  if (!record.token.empty()) entry["client"] = record.token;
  if (record.trace) entry["trace_id"] = ToHex(record.trace->trace_id);
  entry["tokens"] = record.tokens;
  entry["sequences"] = record.sequences;
  entry["request_bytes"] = record.request_bytes;
  entry["response_bytes"] = record.response_bytes;
  entry["decode_seconds"] = record.decode_seconds;
  entry["queue_seconds"] = record.queue_seconds;
  entry["receive_seconds"] = record.receive_seconds;
  entry["compute_seconds"] = record.compute_seconds;
  entry["encode_seconds"] = record.encode_seconds;
  entry["violations"] = record.violations;
  if (!record.message.empty()) {
    entry["message"] = Cut(record.message, kMaxLoggedMessageBytes);
  }
  // Not as a format string: requests may hold braces.
  logger_->log(level, spdlog::string_view_t(ToLine(entry)));
}

void RequestLog::Event(spdlog::level::level_enum level,
                       std::string_view event) {
  Event(level, event, ordered_json::object());
}

void RequestLog::Event(spdlog::level::level_enum level, std::string_view event,
                       const ordered_json& fields) {
  if (!logger_->should_log(level)) return;
  ordered_json entry = Begin(level, event);
  entry.update(fields);
  logger_->log(level, spdlog::string_view_t(ToLine(entry)));
}

int64_t RequestLog::lines_dropped() const {
  int64_t dropped = 0;
  for (const spdlog::sink_ptr& sink : logger_->sinks()) {
    const auto* const lines = dynamic_cast<const AsyncSink*>(sink.get());
    if (lines != nullptr) dropped += lines->lines_dropped();
  }
  return dropped;
}

std::shared_ptr<spdlog::logger> MakeStderrLogger(const std::string& level) {
  auto logger = std::make_shared<spdlog::logger>(
      "counterweight",
      std::make_shared<AsyncSink>(STDERR_FILENO, kMaxWaitingLines));
  logger->set_level(spdlog::level::from_str(level));
  return logger;
}

}  // namespace counterweight::server
