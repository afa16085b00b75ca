#include "server/reload.h"

#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/config/flags.h"
#include "spdlog/sinks/ostream_sink.h"
#include "tests/server/raw_unary.h"
#include "tests/server/running_server.h"
#include "tests/testing/eventually.h"

namespace counterweight::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Reload, TakesUpWhatItCanAndNamesTheRest) {
  const Config running;
  Config loaded;
  loaded.max_tokens = 5;
  loaded.log_level = "debug";
  loaded.threads = 3;
  const Reload reload = PlanReload(running, loaded);
  EXPECT_EQ(reload.error, "");
  EXPECT_THAT(reload.changed, ElementsAre("max_tokens", "log_level"));
  EXPECT_THAT(reload.needs_restart, ElementsAre("threads"));
  EXPECT_EQ(reload.config.max_tokens, 5);
  EXPECT_EQ(reload.config.log_level, "debug");
  EXPECT_EQ(reload.config.threads, running.threads);
}

TEST(Reload, NothingNewChangesNothing) {
  const Reload reload = PlanReload(Config{}, Config{});
  EXPECT_EQ(reload.error, "");
  EXPECT_THAT(reload.changed, IsEmpty());
  EXPECT_THAT(reload.needs_restart, IsEmpty());
}

// Each alone is valid: the new one as a whole, and the running one.
TEST(Reload, APartThatContradictsWhatRunsIsRefused) {
  const Config running;
  Config loaded;
  loaded.max_message_bytes = 1024;
  loaded.max_bytes_in_flight = 4096;
  ASSERT_EQ(Validate(loaded), "");
  const Reload reload = PlanReload(running, loaded);
  EXPECT_THAT(reload.error, HasSubstr("--max_bytes_in_flight=4096"));
  EXPECT_THAT(reload.error, HasSubstr("restart"));
}

class TakeUpTest : public ::testing::Test {
 protected:
  explicit TakeUpTest(const Config& config = WithMetrics()) : config_(config) {
    logger_->set_pattern("%v");
  }

  static Config WithMetrics() {
    Config config = TestConfig();
    config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
    return config;
  }

  void Load(const Config& config, const std::string& error = "") {
    CommandLine line;
    line.config = config;
    line.error = error;
    ApplyReload(line, &config_, &running_.server(), logger_.get(), &log_);
  }

  Config config_;
  RunningServer running_{config_};
  std::ostringstream lines_;
  std::shared_ptr<spdlog::logger> logger_ = std::make_shared<spdlog::logger>(
      "reload", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines_));
  RequestLog log_{logger_};
};

TEST_F(TakeUpTest, LimitsHoldForTheNextRequest) {
  EXPECT_TRUE(running_.Correct(SmallRequest()).ok());
  Config loaded = config_;
  loaded.max_tokens = 5;
  loaded.max_bytes_in_flight *= 2;
  Load(loaded);
  const grpc::Status status = running_.Correct(SmallRequest());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("\ncounterweight_admitted_bytes_limit 4294967296\n"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("event":"config_reloaded")"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("max_tokens":"5")"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("needs_restart":[])"));
  loaded.max_tokens = 6;
  Load(loaded);
  EXPECT_TRUE(running_.Correct(SmallRequest()).ok());
}

class FullServerTakeUpTest : public TakeUpTest {
 protected:
  static Config OfOnePlace() {
    Config config = WithMetrics();
    config.max_requests_in_flight = 1;
    config.max_queued_requests = 0;
    return config;
  }
  FullServerTakeUpTest() : TakeUpTest(OfOnePlace()) {}
};

// Requests that are computed and calls that arrive are bounded apart.
TEST_F(FullServerTakeUpTest, MorePlacesHoldForTheNextCalls) {
  Config loaded = config_;
  loaded.max_requests_in_flight = 2;
  Load(loaded);
  running_.backend().Close();
  std::vector<std::future<grpc::Status>> computed;
  for (int i = 1; i <= 2; ++i) {
    computed.push_back(std::async(
        std::launch::async, [&] { return running_.Correct(SmallRequest()); }));
    running_.backend().WaitForCalls(i);
  }
  running_.backend().Open();
  for (auto& each : computed) EXPECT_TRUE(each.get().ok());
  const RawUnary first(running_.channel());
  const RawUnary second(running_.channel());
  EXPECT_TRUE(Eventually([&] {
    return running_.Scrape().find("\ncounterweight_arriving_requests 2\n") !=
           std::string::npos;
  }));
}

// A request of a full server waits as long as it may now.
TEST_F(FullServerTakeUpTest, AnotherTimeInTheQueueHoldsForTheNextRequest) {
  Config loaded = config_;
  loaded.max_queued_requests = 1;
  loaded.max_queue_seconds = 0.01;
  Load(loaded);
  const auto correct = [&] { return running_.Correct(SmallRequest()); };
  running_.backend().Close();
  std::future<grpc::Status> computed = std::async(std::launch::async, correct);
  running_.backend().WaitForCalls(1);
  std::future<grpc::Status> waits = std::async(std::launch::async, correct);
  EXPECT_EQ(waits.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  running_.backend().Open();
  EXPECT_TRUE(computed.get().ok());
  EXPECT_EQ(waits.get().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(TakeUpTest, AnErrorKeepsWhatWasAndShowsInTheGauge) {
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("\ncounterweight_config_last_reload_success 1\n"));
  Config loaded = config_;
  loaded.max_tokens = 1;
  loaded.log_level = "debug";
  Load(loaded, "cw.yaml:3: unknown key 'x'");
  EXPECT_TRUE(running_.Correct(SmallRequest()).ok());
  EXPECT_EQ(logger_->level(), spdlog::level::info);
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("\ncounterweight_config_last_reload_success 0\n"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("event":"config_reload_failed")"));
  EXPECT_THAT(lines_.str(), HasSubstr("cw.yaml:3: unknown key 'x'"));
  Load(config_);
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("\ncounterweight_config_last_reload_success 1\n"));
}

TEST_F(TakeUpTest, AnErrorIsLoggedAtTheLevelOfErrors) {
  logger_->set_level(spdlog::level::err);
  Load(config_, "cw.yaml:3: unknown key 'x'");
  EXPECT_THAT(lines_.str(), HasSubstr(R"("event":"config_reload_failed")"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("level":"error")"));
  EXPECT_EQ(logger_->level(), spdlog::level::err);
}

// The values of a file that could not be read are not compared.
TEST_F(TakeUpTest, TheErrorOfTheFileIsTheOneThatIsTold) {
  Config loaded = config_;
  loaded.max_message_bytes = 1024;
  loaded.max_bytes_in_flight = 4096;
  Load(loaded, "cw.yaml:3: unknown key 'x'");
  EXPECT_THAT(lines_.str(), HasSubstr("unknown key 'x'"));
  EXPECT_THAT(lines_.str(), Not(HasSubstr("max_bytes_in_flight")));
}

TEST_F(TakeUpTest, TheSameFileAgainChangesNothing) {
  Config loaded = config_;
  loaded.max_tokens = 6;
  Load(loaded);
  lines_.str("");
  Load(loaded);
  EXPECT_THAT(lines_.str(), HasSubstr(R"("changed":{})"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("level":"info")"));
  // A change is undone by the next file.
  loaded.max_tokens = TestConfig().max_tokens;
  lines_.str("");
  Load(loaded);
  EXPECT_THAT(lines_.str(), HasSubstr(R"("changed":{"max_tokens":")"));
  EXPECT_EQ(config_.max_tokens, TestConfig().max_tokens);
}

// Two wrong ones in a row have a line each, and the right values hold.
TEST_F(TakeUpTest, EachWrongFileIsTold) {
  Config right = config_;
  right.max_tokens = 5;
  Load(right);
  for (int i = 0; i < 2; ++i) {
    lines_.str("");
    Load(TestConfig(), "wrong");
    EXPECT_THAT(lines_.str(), HasSubstr(R"("error":"wrong")"));
    EXPECT_EQ(config_.max_tokens, 5);
    EXPECT_EQ(running_.Correct(SmallRequest()).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << "six places";
    EXPECT_THAT(running_.Scrape(),
                HasSubstr("\ncounterweight_config_last_reload_success 0\n"));
  }
}

// A SIGHUP during a drain opens no admission again.
TEST_F(TakeUpTest, AServerThatRefusesWorkGoesOnRefusing) {
  running_.server().AnnounceDrain();
  running_.server().RefuseNewWork();
  Config loaded = config_;
  loaded.max_requests_in_flight += 1;
  loaded.max_queued_requests += 1;
  loaded.max_bytes_in_flight *= 2;
  Load(loaded);
  EXPECT_EQ(running_.Correct(SmallRequest()).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(running_.Health(""), 2);
  EXPECT_TRUE(running_.Get("/readyz").ends_with("\r\n\r\ndraining\n"));
}

// Each line has the new values in the form of the flags.
TEST_F(TakeUpTest, ALineHasTheNewValues) {
  Config loaded = config_;
  loaded.max_queue_seconds = 2.5;
  loaded.drain_delay_s = 7;
  loaded.threads = config_.threads + 1;
  loaded.max_runs += 1;
  Load(loaded);
  EXPECT_THAT(lines_.str(), HasSubstr(R"("max_queue_seconds":"2.5")"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("drain_delay":"7")"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("level":"warning")"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("threads")"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("max_runs")"));
  EXPECT_EQ(config_.threads, TestConfig().threads);
  EXPECT_EQ(config_.max_runs, TestConfig().max_runs);
}

// The running values, not those of the last file, are compared.
TEST_F(TakeUpTest, WhatNeedsARestartIsNamedUntilItIsMade) {
  Config loaded = config_;
  loaded.threads = config_.threads + 1;
  for (const int64_t max_tokens : {6, 7}) {
    loaded.max_tokens = max_tokens;
    lines_.str("");
    Load(loaded);
    EXPECT_THAT(lines_.str(), HasSubstr(R"("needs_restart":["threads"])"));
  }
  lines_.str("");
  loaded.threads = config_.threads;
  Load(loaded);
  EXPECT_THAT(lines_.str(), HasSubstr(R"("needs_restart":[])"));
}

// A file that is valid by itself, but not with values that run on.
TEST_F(TakeUpTest, AContradictionWithWhatRunsIsAnErrorToo) {
  Config loaded = config_;
  loaded.max_message_bytes = 1024;
  loaded.max_bytes_in_flight = 4096;
  ASSERT_EQ(Validate(loaded), "");
  Load(loaded);
  EXPECT_THAT(running_.Scrape(),
              HasSubstr("\ncounterweight_config_last_reload_success 0\n"));
  EXPECT_THAT(lines_.str(), HasSubstr(R"("event":"config_reload_failed")"));
  EXPECT_TRUE(running_.Correct(SmallRequest()).ok());
}

// The values that main reads later, such as the times of the drain, too.
TEST_F(TakeUpTest, AllThatIsReportedAsChangedIsInForce) {
  Config loaded = config_;
  loaded.max_tokens -= 1;
  loaded.max_sequences -= 1;
  loaded.max_requests_in_flight += 1;
  loaded.max_bytes_in_flight += 1;
  loaded.max_queued_requests += 1;
  loaded.max_queue_seconds += 1;
  loaded.min_stream_bytes_per_second += 1;
  loaded.drain_delay_s += 1;
  loaded.drain_timeout_s += 1;
  loaded.log_level = "warning";
  for (const Flag& flag : Flags()) {
    EXPECT_EQ(flag.get(loaded) != flag.get(config_), flag.is_reloadable())
        << flag.name;
  }
  Load(loaded);
  for (const Flag& flag : Flags()) {
    EXPECT_EQ(flag.get(config_), flag.get(loaded)) << flag.name;
  }
}

TEST_F(TakeUpTest, TheLevelChangesAndTheLineIsSeenAtEither) {
  Config loaded = config_;
  loaded.log_level = "error";
  Load(loaded);
  EXPECT_THAT(lines_.str(), HasSubstr(R"("log_level":"error")"));
  EXPECT_EQ(logger_->level(), spdlog::level::err);
  loaded.log_level = "info";
  Load(loaded);
  EXPECT_THAT(lines_.str(), HasSubstr(R"("log_level":"info")"));
  EXPECT_EQ(logger_->level(), spdlog::level::info);
}

}  // namespace
}  // namespace counterweight::server
