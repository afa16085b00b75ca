#include "server/log/request_log.h"

#include <chrono>
#include <climits>
#include <ctime>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/sinks/ostream_sink.h"

namespace counterweight::server {
namespace {

std::string Logged(const RequestRecord& record,
                   spdlog::level::level_enum level = spdlog::level::info) {
  std::ostringstream out;
  auto logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_st>(out));
  logger->set_pattern("%v");
  logger->set_level(level);
  RequestLog(logger).Request(record);
  return out.str();
}

TEST(RequestLog, IsOneLineWhateverTheRequestSays) {
  RequestRecord record;
  record.rpc = "Correct";
  record.run = "a\nb {} %s \"quoted\"";
  record.request_id = std::string(100000, 'x');
  const std::string line = Logged(record);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_LT(line.size(), 2000U);
  EXPECT_NE(line.find(R"(a\nb {} %s \"quoted\")"), std::string::npos);
}

// Returns the run's field of a request's line verbatim.
std::string LoggedRun(std::string_view run) {
  RequestRecord record;
  record.run = run;
  const std::string line = Logged(record);
  const size_t begin = line.find(R"("run":)") + 6;
  return line.substr(begin, line.find(R"(,"replica":)") - begin);
}

TEST(RequestLog, EscapesWhatSplitsLinesOrFoolsTerminals) {
  EXPECT_EQ(LoggedRun("plain ~"), R"("plain ~")");
  EXPECT_EQ(LoggedRun("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(LoggedRun(std::string_view("\0\x01\x1B[31m\x7F", 8)),
            R"("\u0000\u0001\u001b[31m\u007f")");
  EXPECT_EQ(LoggedRun("\u0085\u009b31m"), R"("\u0085\u009b31m")");
  EXPECT_EQ(LoggedRun("\u2028\u202Etxt.exe\u2066\u200E\uFEFF"),
            R"("\u2028\u202etxt.exe\u2066\u200e\ufeff")");
  EXPECT_EQ(LoggedRun("\u00E9 \U0001F600"), R"("\u00e9 \ud83d\ude00")");
}

TEST(RequestLog, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(LoggedRun("\xFF"), R"("\ufffd")");
  EXPECT_EQ(LoggedRun("\xC3"), R"("\ufffd")") << "cut off";
  EXPECT_EQ(LoggedRun("\xC0\x80"), R"("\ufffd\ufffd")") << "overlong";
  EXPECT_EQ(LoggedRun("\xED\xA0\x80"), R"("\ufffd\ufffd\ufffd")")
      << "surrogate";
  EXPECT_EQ(LoggedRun("\xF4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")");
}

TEST(RequestLog, CutsBetweenCharacters) {
  std::string run(127, 'x');
  EXPECT_EQ(LoggedRun(run + "\u00E9"), "\"" + run + "\"");
}

TEST(RequestLog, HasItsFieldsInOrder) {
  RequestRecord record;
  record.decode_seconds = 0.25;
  record.queue_seconds = std::numeric_limits<double>::quiet_NaN();
  record.message = "told";
  const auto line = nlohmann::ordered_json::parse(Logged(record));
  std::vector<std::string> names;
  for (const auto& [name, value] : line.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"time",
                                             "level",
                                             "event",
                                             "rpc",
                                             "request_id",
                                             "run",
                                             "replica",
                                             "method",
                                             "code",
                                             "peer",
                                             "tokens",
                                             "sequences",
                                             "request_bytes",
                                             "response_bytes",
                                             "decode_seconds",
                                             "queue_seconds",
                                             "receive_seconds",
                                             "compute_seconds",
                                             "encode_seconds",
                                             "violations",
                                             "message"}));
  EXPECT_EQ(line["decode_seconds"], 0.25);
  EXPECT_TRUE(line["queue_seconds"].is_null());
}

// A pipe accepts up to so many bytes atomically.
TEST(RequestLog, ALineOfARequestFitsIntoAPipeAtOnce) {
  RequestRecord record;
  for (double* seconds :
       {&record.decode_seconds, &record.queue_seconds, &record.receive_seconds,
        &record.compute_seconds, &record.encode_seconds}) {
    *seconds = 1.0 / 81;
  }
  for (const char* character :
       {"\x01", "\xFF", "\"", "x", "\u00E9", "\u20AC"}) {
    std::string long_text;
    while (long_text.size() < 100000) long_text += character;
    for (std::string* text : {&record.request_id, &record.run, &record.replica,
                              &record.method, &record.message}) {
      *text = long_text;
    }
    const std::string line = Logged(record);
    EXPECT_LE(line.size(), static_cast<size_t>(PIPE_BUF)) << character;
    // At least half of the limit for plain text.
    EXPECT_GT(line.size(), 1500U) << character;
  }
}

TEST(RequestLog, AFlushAtEndIsOneAtTheEnd) {
  class CountingSink final : public spdlog::sinks::base_sink<std::mutex> {
   public:
    int flushes = 0;

   private:
    void sink_it_(const spdlog::details::log_msg& /*line*/) override {}
    void flush_() override { flushes += 1; }
  };
  const auto sink = std::make_shared<CountingSink>();
  {
    const FlushAtEnd flush(std::make_shared<spdlog::logger>("test", sink));
    EXPECT_EQ(sink->flushes, 0);
  }
  EXPECT_EQ(sink->flushes, 1);
}

TEST(RequestLog, OnlyItsOwnLoggersDropLines) {
  std::ostringstream out;
  const auto logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_st>(out));
  EXPECT_EQ(RequestLog(logger).lines_dropped(), 0);
}

TEST(RequestLog, OnlyOurFailuresAreErrors) {
  for (int code = 0; code <= 16; ++code) {
    RequestRecord record;
    record.code = static_cast<grpc::StatusCode>(code);
    const auto line = nlohmann::json::parse(Logged(record));
    const bool is_ours = record.code == grpc::StatusCode::INTERNAL ||
                         record.code == grpc::StatusCode::UNKNOWN;
    EXPECT_EQ(line["level"], is_ours ? "error" : "info") << code;
    EXPECT_EQ(Logged(record, spdlog::level::warn).empty(), !is_ours) << code;
  }
}

TEST(RequestLog, TimesAreOfUtcWithMicroseconds) {
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::time_point_cast<std::chrono::microseconds>(
        std::chrono::system_clock::now());
    const auto line = nlohmann::json::parse(Logged({}));
    const auto end = std::chrono::system_clock::now();
    const auto text = line["time"].get<std::string>();
    ASSERT_EQ(text.size(), std::string("2026-01-31T12:00:00.123456Z").size());
    tm fields{};
    const char* const rest =
        strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &fields);
    ASSERT_NE(rest, nullptr) << text;
    ASSERT_EQ(rest[0], '.') << text;
    const auto time =
        std::chrono::system_clock::from_time_t(timegm(&fields)) +
        std::chrono::microseconds(std::stoi(std::string(rest + 1, 6)));
    EXPECT_EQ(text.back(), 'Z');
    EXPECT_GE(time, begin) << text;
    EXPECT_LE(time, end) << text;
  }
}

TEST(RequestLog, WhatARequestLacksHasNoField) {
  auto line = nlohmann::json::parse(Logged({}));
  for (const char* const field : {"client", "trace_id", "message"}) {
    EXPECT_FALSE(line.contains(field)) << field;
  }
  RequestRecord record;
  record.token = "trainer";
  record.trace = Trace{};
  record.trace->trace_id = {0x4b, 0xf9};
  record.code = grpc::StatusCode::NOT_FOUND;
  record.message = "none";
  record.violations = 3;
  line = nlohmann::json::parse(Logged(record));
  EXPECT_EQ(line["client"], "trainer");
  EXPECT_EQ(line["trace_id"], "4bf90000000000000000000000000000");
  EXPECT_EQ(line["message"], "none");
  EXPECT_EQ(line["code"], "NOT_FOUND");
  EXPECT_EQ(line["violations"], 3);
}

TEST(RequestLog, EventsHaveTheirLevelAndTheirFields) {
  std::ostringstream out;
  auto logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_st>(out));
  logger->set_pattern("%v");
  logger->set_level(spdlog::level::warn);
  RequestLog log(logger);
  log.Event(spdlog::level::info, "hidden", {{"a", 1}});
  EXPECT_EQ(out.str(), "");
  log.Event(spdlog::level::warn, "shown", {{"b", "x\ny"}, {"a", 1}});
  const std::string line = out.str();
  EXPECT_NE(line.find(R"("level":"warning","event":"shown","b":"x\ny","a":1})"),
            std::string::npos)
      << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(RequestLog, OurFailuresAreErrors) {
  RequestRecord record;
  record.code = grpc::StatusCode::INTERNAL;
  EXPECT_NE(Logged(record, spdlog::level::err).find(R"("level":"error")"),
            std::string::npos);
  record.code = grpc::StatusCode::INVALID_ARGUMENT;
  EXPECT_EQ(Logged(record, spdlog::level::err), "");
}

}  // namespace
}  // namespace counterweight::server
