#include "server/observe/request_log.h"

#include <unistd.h>

#include <chrono>

#include "server/call/status.h"
#include "server/observe/async_sink.h"
#include "spdlog/fmt/chrono.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Strings of a request that was refused may have any length. Escaped they have
// at most twice these bytes, so that a line has less than PIPE_BUF, which a
// pipe takes as a whole or not at all.
constexpr size_t kMaxLoggedBytes = 128;
constexpr size_t kMaxLoggedMessageBytes = 1024;

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

JsonObject Begin(spdlog::level::level_enum level, std::string_view event) {
  const auto name = spdlog::level::to_string_view(level);
  JsonObject json;
  json.Add("time", Now())
      .Add("level", std::string_view(name.data(), name.size()))
      .Add("event", event);
  return json;
}

std::string_view Cut(std::string_view text,
                     size_t max_bytes = kMaxLoggedBytes) {
  text = text.substr(0, max_bytes);
  const auto escaped = [&text] {
    std::string json;
    AppendJsonString(text, &json);
    return json.size();
  };
  while (escaped() > 2 * max_bytes) text.remove_suffix(text.size() / 4 + 1);
  return text;
}

}  // namespace

void RequestLog::Request(const RequestRecord& record) {
  const bool our_fault = record.code == grpc::StatusCode::INTERNAL ||
                         record.code == grpc::StatusCode::UNKNOWN;
  const auto level = our_fault ? spdlog::level::err : spdlog::level::info;
  if (!logger_->should_log(level)) return;
  JsonObject json = Begin(level, "request");
  json.Add("rpc", record.rpc)
      .Add("request_id", Cut(record.request_id))
      .Add("run", Cut(record.run))
      .Add("replica", Cut(record.replica))
      .Add("method", Cut(record.method))
      .Add("code", CodeName(record.code))
      .Add("peer", record.peer)
      .Add("tokens", record.tokens)
      .Add("sequences", record.sequences)
      .Add("request_bytes", record.request_bytes)
      .Add("response_bytes", record.response_bytes)
      .Add("decode_seconds", record.decode_seconds)
      .Add("queue_seconds", record.queue_seconds)
      .Add("receive_seconds", record.receive_seconds)
      .Add("compute_seconds", record.compute_seconds)
      .Add("encode_seconds", record.encode_seconds)
      .Add("violations", record.violations);
  if (!record.message.empty()) {
    json.Add("message", Cut(record.message, kMaxLoggedMessageBytes));
  }
  // Not as a format string: requests may hold braces.
  logger_->log(level, spdlog::string_view_t(json.Finish()));
}

void RequestLog::Event(spdlog::level::level_enum level, std::string_view event,
                       const JsonObject& fields) {
  if (!logger_->should_log(level)) return;
  JsonObject json = Begin(level, event);
  json.Append(fields);
  logger_->log(level, spdlog::string_view_t(json.Finish()));
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
