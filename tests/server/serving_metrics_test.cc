// What Prometheus sees of a running server.
#include <future>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/running_server.h"

namespace counterweight::server {
namespace {

Config WithMetrics() {
  Config config = TestConfig();
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  return config;
}

bool Has(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

TEST(ServingMetrics, AScrapeShowsServingAndDrift) {
  RunningServer running(WithMetrics(), kernels::MakeCpuCorrector(1));
  ASSERT_TRUE(running.Correct(SmallRequest("a", "run-1")).ok());
  ASSERT_TRUE(running.Correct(SmallRequest("b")).ok());
  EXPECT_FALSE(running.Correct({}).ok());
  const std::string text = running.Scrape();
  EXPECT_TRUE(Has(
      text, R"(counterweight_requests_total{code="OK",method="Correct"} 2)"));
  EXPECT_TRUE(Has(
      text,
      R"(counterweight_requests_total{code="INVALID_ARGUMENT",method="Correct"} 1)"));
  EXPECT_TRUE(Has(text, "counterweight_tokens_total 10"));
  EXPECT_TRUE(Has(text, "counterweight_sequences_total 4"));
  EXPECT_TRUE(Has(text, "counterweight_requests_in_flight 0"));
  EXPECT_TRUE(Has(text, "counterweight_ready 1"));
  EXPECT_TRUE(Has(text, R"(counterweight_drift_tokens_total{run="run-1"} 5)"));
  EXPECT_TRUE(Has(text, "counterweight_corrected_tokens_total 10"));
  for (
      const char* name :
      {"counterweight_build_info{", "process_resident_memory_bytes ",
       "process_cpu_seconds_total ", "process_open_fds ",
       "process_start_time_seconds ", "counterweight_drift_kl_nats{",
       "counterweight_drift_effective_sample_size_ratio{",
       R"(counterweight_request_stage_seconds_count{stage="compute"} 2)",
       R"(counterweight_drift_token_log_ratio_nats_bucket{run="run-1",le="0.3"})"}) {
    EXPECT_NE(text.find(std::string("\n") + name), std::string::npos) << name;
  }
}

TEST(ServingMetrics, ARetryCountsOnceInDrift) {
  RunningServer running(WithMetrics());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(running.Correct(SmallRequest("same", "run")).ok());
  }
  const std::string text = running.Scrape();
  EXPECT_TRUE(Has(text, R"(counterweight_drift_batches_total{run="run"} 1)"));
  EXPECT_TRUE(Has(text, "counterweight_corrected_batches_total 1"));
  EXPECT_TRUE(Has(
      text, R"(counterweight_requests_total{code="OK",method="Correct"} 3)"));
}

TEST(ServingMetrics, ConcurrentDuplicatesCountOnce) {
  RunningServer running(WithMetrics());
  running.backend().Close();
  std::vector<std::future<grpc::Status>> calls;
  for (int i = 0; i < 2; ++i) {
    calls.push_back(std::async(std::launch::async, [&] {
      return running.Correct(SmallRequest("same", "run"));
    }));
  }
  running.backend().WaitForCalls(2);
  running.backend().Open();
  for (auto& call : calls) EXPECT_TRUE(call.get().ok());
  EXPECT_TRUE(Has(running.Scrape(),
                  R"(counterweight_drift_batches_total{run="run"} 1)"));
}

TEST(ServingMetrics, AFailureIsNotPublishedAndItsRetryIs) {
  RunningServer running(WithMetrics());
  kernels::CorrectResult failure;
  failure.status = kernels::CorrectStatus::kNonFinite;
  running.backend().SetResult(failure);
  EXPECT_FALSE(running.Correct(SmallRequest("id", "run")).ok());
  EXPECT_EQ(running.Scrape().find("drift_batches_total{"), std::string::npos);
  running.backend().SetResult({});
  EXPECT_TRUE(running.Correct(SmallRequest("id", "run")).ok());
  const std::string text = running.Scrape();
  EXPECT_TRUE(Has(text, R"(counterweight_drift_batches_total{run="run"} 1)"));
  EXPECT_TRUE(Has(text, "counterweight_non_finite_rejections_total 1"));
}

TEST(ServingMetrics, ReadyTurnsWithHealth) {
  RunningServer running(WithMetrics());
  running.server().AnnounceDrain();
  EXPECT_TRUE(Has(running.Scrape(), "counterweight_ready 0"));
}

}  // namespace
}  // namespace counterweight::server
