#include "server/observe/request_log.h"

#include <climits>
#include <mutex>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
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
  EXPECT_NE(line.find(R"(a\u000ab {} %s \"quoted\")"), std::string::npos);
}

// A pipe takes so many bytes as a whole or not at all.
TEST(RequestLog, ALineOfARequestFitsIntoAPipeAtOnce) {
  RequestRecord record;
  for (std::string* text : {&record.request_id, &record.run, &record.replica,
                            &record.method, &record.message}) {
    *text = std::string(100000, '\x01');
  }
  const std::string line = Logged(record);
  EXPECT_LE(line.size(), static_cast<size_t>(PIPE_BUF));
  // Half of what plain text may have, but not nothing.
  EXPECT_GT(line.size(), 1500U);
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
