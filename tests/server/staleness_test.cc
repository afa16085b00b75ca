// Drift by staleness through a running server: any transport gives the same
// bytes, wrong versions are named, and Prometheus shows the split by run.
#include "kernels/staleness.h"

#include <cstring>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/running_server.h"
#include "tests/server/stream_call.h"

namespace counterweight::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 7;
constexpr int64_t kLength = 1001;

template <typename T>
void AddVector(v1::TensorRole role, v1::DType dtype,
               const std::vector<T>& values, v1::CorrectRequest* request) {
  v1::Tensor* const tensor = request->add_tensors();
  tensor->set_role(role);
  tensor->set_dtype(dtype);
  tensor->set_data(values.data(), values.size() * sizeof(T));
}

v1::CorrectRequest StaleRequest(int32_t newest = 12) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 0.2f);
  std::vector<float> rollout, old;
  std::vector<uint8_t> mask;
  std::vector<int32_t> versions;
  for (int64_t i = 0; i < kRows * kLength; ++i) {
    rollout.push_back(-1.0f + normal(random));
    old.push_back(rollout.back() + normal(random));
    mask.push_back(random() % 5 != 0);
    versions.push_back(static_cast<int32_t>(random() % 13) - 1);
  }
  mask.back() = 1;
  versions.back() = newest;
  v1::CorrectRequest request;
  v1::PaddedLayout* const layout = request.mutable_layout()->mutable_padded();
  layout->set_num_sequences(kRows);
  layout->set_length(kLength);
  AddVector(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, mask, &request);
  AddVector(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, v1::D_TYPE_F32, rollout,
            &request);
  AddVector(v1::TENSOR_ROLE_OLD_LOG_PROBS, v1::D_TYPE_F32, old, &request);
  AddVector(v1::TENSOR_ROLE_POLICY_VERSIONS, v1::D_TYPE_I32, versions,
            &request);
  request.mutable_method()->mutable_preset()->set_name("token_tis");
  request.mutable_labels()->set_run("stale");
  request.mutable_labels()->set_policy_version(12);
  return request;
}

class StalenessOfServer : public testing::Test {
 protected:
  static Config WithMetrics() {
    Config config = TestConfig();
    config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
    return config;
  }

  RunningServer running_{WithMetrics(), kernels::MakeCpuCorrector(2)};
};

TEST_F(StalenessOfServer, StreamsAnswerAsOneMessageDoes) {
  const v1::CorrectRequest request = StaleRequest();
  v1::CorrectResponse expected;
  ASSERT_TRUE(running_.Correct(request, &expected).ok());
  ASSERT_EQ(expected.staleness().buckets_size(), 6);
  for (const size_t chunk_bytes : {0, 4099, 65536}) {
    v1::CorrectResponse response;
    const grpc::Status status =
        Stream(running_.channel(), request, chunk_bytes, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.staleness().SerializeAsString(),
              expected.staleness().SerializeAsString());
  }
}

TEST_F(StalenessOfServer, AWrongVersionIsNamedByBothRpcs) {
  const v1::CorrectRequest request = StaleRequest(/*newest=*/13);
  v1::CorrectResponse response;
  for (const grpc::Status& status :
       {running_.Correct(request),
        Stream(running_.channel(), request, 0, &response)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(),
                HasSubstr("tensors[POLICY_VERSIONS]: the version is 13 at "
                          "sequence 6, token 1000,"));
  }
}

// Spans are objects twice: of the message, and of the kernels.
TEST(StalenessOfAFakeServer, AdmissionCountsSpans) {
  constexpr int64_t kSpans = 200000;
  Config config = TestConfig();
  config.max_tokens = kSpans;
  config.metrics_listen = {.host = "127.0.0.1", .port = 0, .path = ""};
  RunningServer running(config);
  v1::CorrectRequest request;
  request.mutable_layout()->mutable_padded()->set_num_sequences(1);
  request.mutable_layout()->mutable_padded()->set_length(kSpans);
  AddVector(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8,
            std::vector<uint8_t>(kSpans, 1), &request);
  for (const v1::TensorRole role :
       {v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, v1::TENSOR_ROLE_OLD_LOG_PROBS}) {
    AddVector(role, v1::D_TYPE_F32, std::vector<float>(kSpans, -1.0f),
              &request);
  }
  request.mutable_method()->mutable_preset()->set_name("token_tis");
  request.mutable_labels()->set_policy_version(1);
  for (int64_t i = 0; i < kSpans; ++i) {
    v1::VersionSpan* const span = request.add_version_spans();
    span->set_start(i);
    span->set_end(i + 1);
    span->set_policy_version(1);
  }
  running.backend().Close();
  auto answer =
      std::async(std::launch::async, [&] { return running.Correct(request); });
  running.backend().WaitForCalls(1);
  const std::string page = running.Scrape();
  const std::string name = "\ncounterweight_admitted_bytes ";
  const double admitted = std::stod(page.substr(page.find(name) + name.size()));
  // Two outputs of five bytes a token, each as object and as bytes.
  const size_t others = request.SpaceUsedLong() + 2 * 5 * kSpans;
  EXPECT_GE(admitted, static_cast<double>(
                          others + kSpans * sizeof(kernels::VersionSpan)));
  running.backend().Open();
  EXPECT_TRUE(answer.get().ok());
}

TEST_F(StalenessOfServer, PrometheusShowsTheSplit) {
  v1::CorrectResponse response;
  ASSERT_TRUE(running_.Correct(StaleRequest(), &response).ok());
  ASSERT_TRUE(running_.Correct(SmallRequest("", "other")).ok());
  const std::string page = running_.Scrape();
  const v1::StalenessSummary& staleness = response.staleness();
  int64_t known = 0;
  const char* const labels[] = {"0", "1", "2", "3-4", "5-8", "9+"};
  for (int b = 0; b < 6; ++b) {
    known += staleness.buckets(b).tokens();
    EXPECT_THAT(
        page,
        HasSubstr("counterweight_drift_staleness_tokens_total{run=\"stale\","
                  "staleness=\"" +
                  std::string(labels[b]) + "\"} " +
                  std::to_string(staleness.buckets(b).tokens()) + "\n"));
  }
  EXPECT_THAT(page, HasSubstr("staleness=\"unknown\"} " +
                              std::to_string(staleness.unknown_tokens())));
  EXPECT_THAT(
      page,
      HasSubstr("counterweight_drift_staleness_versions_count{run=\"stale\"} " +
                std::to_string(known)));
  EXPECT_THAT(page, HasSubstr("counterweight_drift_staleness_k3_nats{"
                              "run=\"stale\",staleness=\"9+\"}"));
  // A run without versions has none of these.
  EXPECT_EQ(page.find("run=\"other\",staleness"), std::string::npos);
  EXPECT_EQ(page.find("staleness_versions_count{run=\"other\""),
            std::string::npos);
}

}  // namespace
}  // namespace counterweight::server
