// Prometheus's view of a running server.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <future>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/file_descriptor.h"
#include "server/observe/drift_table.h"
#include "server/observe/serving_table.h"
#include "tests/server/running_server.h"
#include "tests/server/temporary_folder.h"

namespace counterweight::server {
namespace {

Config ServingMetrics() {
  Config config = TestConfig();
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  return config;
}

bool Has(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

TEST(ServingMetrics, AScrapeShowsServingAndDrift) {
  RunningServer running(ServingMetrics(), kernels::MakeCpuCorrector(1));
  ASSERT_TRUE(running.Correct(SmallRequest("a", "run-1")).ok());
  ASSERT_TRUE(running.Correct(SmallRequest("b")).ok());
  EXPECT_FALSE(running.Correct({}).ok());
  // An answer is in flight until gRPC has released it, which may be after the
  // client has read it.
  ASSERT_TRUE(running.server().WaitUntilIdle(std::chrono::minutes(1)));
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

// A family of a scrape or of a table.
struct Shown {
  std::string help;
  prometheus::MetricType type = prometheus::MetricType::Untyped;
  std::set<std::string> labels;
  bool operator==(const Shown&) const = default;
};

std::map<std::string, Shown> FamiliesOf(const std::string& page) {
  std::map<std::string, Shown> families;
  std::istringstream lines(page.substr(page.find("# HELP")));
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    std::smatch part;
    if (std::regex_match(line, part, std::regex("# HELP (\\S+) (.*)"))) {
      name = part[1];
      families[name].help = part[2];
    } else if (line.starts_with("# TYPE")) {
      using enum prometheus::MetricType;
      families[name].type = line.ends_with("counter") ? Counter
                            : line.ends_with("gauge") ? Gauge
                                                      : Histogram;
    } else {
      const std::regex label("([a-z_]+)=\"");
      for (std::sregex_iterator each(line.begin(), line.end(), label), end;
           each != end; ++each) {
        if ((*each)[1] != "le") families[name].labels.insert((*each)[1]);
      }
    }
  }
  return families;
}

void Add(const MetricRow& row, std::map<std::string, Shown>* families) {
  Shown shown{.help = std::string(row.help), .type = row.type, .labels = {}};
  std::istringstream labels{std::string(row.labels)};
  for (std::string label; std::getline(labels >> std::ws, label, ',');) {
    shown.labels.insert(label);
  }
  EXPECT_TRUE(families->emplace(row.name, shown).second) << row.name;
}

// Returns a request with a weight, a rule, a loss, a KL penalty, a policy
// version, a step and versions of tokens.
v1::CorrectRequest RequestWithAll() {
  v1::CorrectRequest request = SmallRequest("a", "run-1");
  request.mutable_labels()->set_policy_version(4);
  request.mutable_labels()->set_step(2);
  v1::VersionSpan* const span = request.add_version_spans();
  span->set_end(3);
  span->set_policy_version(4);
  request.set_compute_loss(true);
  const v1::Tensor old = request.tensors(1);
  for (const v1::TensorRole role :
       {v1::TENSOR_ROLE_CURRENT_LOG_PROBS, v1::TENSOR_ROLE_REF_LOG_PROBS,
        v1::TENSOR_ROLE_ADVANTAGES}) {
    *request.add_tensors() = old;
    request.mutable_tensors()->rbegin()->set_role(role);
  }
  v1::Preset& preset = *request.mutable_method()->mutable_preset();
  preset.set_name("seq_mis");
  v1::PolicyLoss& loss = *preset.mutable_policy_loss();
  loss.set_surrogate(v1::SURROGATE_PPO_CLIP);
  loss.set_ratio_source(v1::RATIO_SOURCE_CURRENT_OLD);
  loss.set_aggregation(v1::LOSS_AGGREGATION_TOKEN_MEAN);
  loss.set_denominator(v1::LOSS_DENOMINATOR_ORIGINAL);
  loss.set_clip_low(0.2);
  loss.set_clip_high(0.2);
  preset.mutable_kl_penalty()->set_estimator(v1::KL_ESTIMATOR_K3);
  preset.mutable_kl_penalty()->set_coefficient(0.5);
  return request;
}

// METRICS.md is generated from these.
TEST(ServingMetrics, AScrapeShowsTheTables) {
  const TemporaryFolder folder;
  Config config = ServingMetrics();
  config.shared_memory_socket = folder.File("shm.sock");
  RunningServer running(config);
  const grpc::Status status = running.Correct(RequestWithAll());
  ASSERT_TRUE(status.ok()) << status.error_message();
  grpc::ClientContext context;
  v1::ReportStepRequest report;
  report.set_request_id("id");
  report.mutable_labels()->set_run("run");
  report.mutable_labels()->set_step(1);
  (*report.mutable_skipped_batches())["late"] = 1;
  v1::ReportStepResponse answer;
  ASSERT_TRUE(v1::CorrectionService::NewStub(running.channel())
                  ->ReportStep(&context, report, &answer)
                  .ok());
  grpc::ClientContext other_context;
  v1::DeclareRunRequest declaration;
  declaration.mutable_labels()->set_run("run");
  declaration.mutable_method()->mutable_preset()->set_name("token_tis");
  v1::DeclareRunResponse declared;
  ASSERT_TRUE(v1::CorrectionService::NewStub(running.channel())
                  ->DeclareRun(&other_context, declaration, &declared)
                  .ok());

  v1::DiagnoseRequest diagnosis;
  ASSERT_TRUE(diagnosis.ParseFromString(
      SmallRequest("audited", "run").SerializeAsString()));
  diagnosis.mutable_audit();
  v1::DiagnoseResponse diagnosed;
  grpc::ClientContext diagnose_context;
  ASSERT_TRUE(v1::CorrectionService::NewStub(running.channel())
                  ->Diagnose(&diagnose_context, diagnosis, &diagnosed)
                  .ok());

  std::map<std::string, Shown> expected;
  for (const MetricRow& row : kServingTable) Add(row, &expected);
  for (const MetricRow& row : kSampleTable) Add(row, &expected);
  for (const MetricRow& row : kSharedMemoryTable) Add(row, &expected);
  for (const auto& each : kProcessTable) Add(each.row, &expected);
  for (const auto& each : kCorrectedCounters) Add(each.row, &expected);
  for (const MetricRow& row : kCorrectedTable) Add(row, &expected);
  for (const auto& each : kRunCounters) Add(each.row, &expected);
  for (const auto& each : kRunSums) Add(each.row, &expected);
  for (const MetricRow& row : kRunTable) Add(row, &expected);
  for (const auto& each : kDriftGauges) Add(each.row, &expected);
  for (const MetricRow& row : kDoctorTable) Add(row, &expected);
  for (const MetricRow& row : kStepTable) Add(row, &expected);
  for (const MetricRow& row : kDeclaredTable) Add(row, &expected);
  const std::map<std::string, Shown> shown = FamiliesOf(running.Scrape());
  for (const auto& [name, family] : expected) {
    const auto found = shown.find(name);
    ASSERT_NE(found, shown.end()) << name;
    EXPECT_EQ(found->second, family) << name;
  }
  for (const auto& [name, family] : shown) {
    // The library counts its own scrapes.
    EXPECT_TRUE(expected.contains(name)) << name;
  }
}

// Alerts compare these with the requests to correct one.
TEST(ServingMetrics, OnlyACorrectedBatchHasTimes) {
  RunningServer running(ServingMetrics(), kernels::MakeCpuCorrector(1));
  v1::DiagnoseRequest diagnosis;
  ASSERT_TRUE(diagnosis.ParseFromString(SmallRequest("d").SerializeAsString()));
  v1::DiagnoseResponse diagnosed;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::CorrectionService::NewStub(running.channel())
                  ->Diagnose(&context, diagnosis, &diagnosed)
                  .ok());
  std::string text = running.Scrape();
  EXPECT_TRUE(Has(text, "counterweight_request_seconds_count 0")) << text;
  EXPECT_TRUE(Has(
      text, R"(counterweight_request_stage_seconds_count{stage="compute"} 0)"));
  EXPECT_TRUE(Has(text, "counterweight_response_bytes_total 0"));
  ASSERT_TRUE(running.Correct(SmallRequest("a")).ok());
  text = running.Scrape();
  EXPECT_TRUE(Has(text, "counterweight_request_seconds_count 1")) << text;
}

TEST(ServingMetrics, ARetryCountsOnceInDrift) {
  RunningServer running(ServingMetrics());
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
  RunningServer running(ServingMetrics());
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
  RunningServer running(ServingMetrics());
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
  RunningServer running(ServingMetrics());
  EXPECT_TRUE(running.Get("/livez").starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(running.Get("/readyz").starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(running.Get("/readyz").ends_with("\r\n\r\nready\n"));
  running.server().AnnounceDrain();
  EXPECT_TRUE(Has(running.Scrape(), "counterweight_ready 0"));
  // Killed, it could not finish its work.
  EXPECT_TRUE(running.Get("/livez").starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(running.Get("/readyz").starts_with("HTTP/1.1 503 "));
  EXPECT_TRUE(running.Get("/readyz").ends_with("\r\n\r\ndraining\n"));
}

TEST(ServingMetrics, ProbesHaveTheirPathsAlone) {
  Config config = ServingMetrics();
  config.page = false;
  RunningServer running(config);
  EXPECT_TRUE(running.Get("/readyz?verbose").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(running.Get("/readyz/x").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(running.Get("/").starts_with("HTTP/1.1 404 "));
}

TEST(ServingMetrics, LinesThatTheLogDroppedAreCounted) {
  RunningServer running(ServingMetrics());
  EXPECT_TRUE(Has(running.Scrape(), "counterweight_log_lines_dropped_total 0"));
}

}  // namespace
}  // namespace counterweight::server
