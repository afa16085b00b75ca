// Bounds that the calm steps of a run decide.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/corrector.h"
#include "tests/server/running_server.h"
#include "tests/server/stream_call.h"
#include "tests/testing/random_rows.h"

namespace counterweight::server {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kStepRows = 8;
constexpr int kStepLength = 250;
constexpr char kCalmPresetField[] = "method.preset.calm_quantiles[upper]";
constexpr char kCalmConfigField[] =
    "method.config.importance_weight.upper_calm_quantile";

std::string FloatBytes(const std::vector<float>& numbers) {
  std::string bytes(numbers.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

v1::Method CalmPreset(const std::string& name, double quantile, double until) {
  v1::Method method;
  method.mutable_preset()->set_name(name);
  (*method.mutable_preset()->mutable_calm_quantiles())["upper"] = quantile;
  if (until > 0.0) {
    (*method.mutable_preset()->mutable_parameters())["upper"] = until;
  }
  return method;
}

v1::Method CalmConfig(double quantile, double until) {
  v1::Method method;
  v1::ImportanceWeight* const weight =
      method.mutable_config()->mutable_importance_weight();
  weight->set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
  weight->set_level(v1::LEVEL_TOKEN);
  weight->set_bound(v1::BOUND_TRUNCATE);
  // As token_tis has it.
  weight->set_token_clamp(20.0);
  weight->set_upper_calm_quantile(quantile);
  if (until > 0.0) weight->set_upper(until);
  return method;
}

// The log ratios of a step's batch.
std::vector<float> StepLogs(int64_t step) {
  kernels::Random random(static_cast<uint64_t>(100 + step));
  std::vector<float> logs;
  for (int i = 0; i < kStepRows * kStepLength; ++i) {
    // Differences of log-probs are exact.
    logs.push_back(
        static_cast<float>(std::round(0.1 * random.Normal() * 4096) / 4096));
  }
  return logs;
}

v1::CorrectRequest StepRequest(int64_t step, const v1::Method& method,
                               const std::string& run = "r") {
  v1::CorrectRequest request;
  request.mutable_labels()->set_run(run);
  request.mutable_labels()->set_step(step);
  request.mutable_layout()->mutable_padded()->set_num_sequences(kStepRows);
  request.mutable_layout()->mutable_padded()->set_length(kStepLength);
  const auto add = [&](v1::TensorRole role, v1::DType dtype, std::string data) {
    v1::Tensor* const tensor = request.add_tensors();
    tensor->set_role(role);
    tensor->set_dtype(dtype);
    tensor->set_data(std::move(data));
  };
  add(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, v1::D_TYPE_F32,
      FloatBytes(std::vector<float>(kStepRows * kStepLength, -4.0f)));
  std::vector<float> old = StepLogs(step);
  for (float& log_prob : old) log_prob -= 4.0f;
  add(v1::TENSOR_ROLE_OLD_LOG_PROBS, v1::D_TYPE_F32, FloatBytes(old));
  add(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8,
      std::string(kStepRows * kStepLength, '\1'));
  *request.mutable_method() = method;
  return request;
}

class CalmBoundTest : public testing::Test {
 protected:
  v1::CorrectResponse Correct(const v1::CorrectRequest& request) {
    v1::CorrectResponse response;
    const grpc::Status status = running_->Correct(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  // The bound of an answer, which has one.
  v1::ResolvedBound BoundOf(const v1::CorrectRequest& request) {
    const v1::CorrectResponse response = Correct(request);
    EXPECT_EQ(response.resolved_bounds_size(), 1);
    return response.resolved_bounds_size() == 1 ? response.resolved_bounds(0)
                                                : v1::ResolvedBound();
  }

  std::vector<std::string> Refused(const v1::CorrectRequest& request,
                                   std::string* why = nullptr) {
    const grpc::Status status = running_->Correct(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    std::vector<std::string> fields;
    const auto detail = DetailOf<google::rpc::BadRequest>(status);
    for (const auto& each : detail.field_violations()) {
      fields.push_back(each.field());
      if (why != nullptr) *why = each.description();
    }
    return fields;
  }

  void TakeSteps(const v1::Method& method, int64_t end,
                 const std::string& run = "r") {
    for (int64_t step = 0; step < end; ++step) {
      const v1::ResolvedBound bound = BoundOf(StepRequest(step, method, run));
      EXPECT_FALSE(bound.is_calm());
      EXPECT_EQ(bound.calm_steps(), step);
      EXPECT_EQ(bound.calm_weights(), step * kStepRows * kStepLength);
    }
  }

  void Restart() {
    running_.reset();
    running_ = std::make_unique<RunningServer>(TestConfig(),
                                               kernels::MakeCpuCorrector(1));
  }

  std::unique_ptr<RunningServer> running_ = std::make_unique<RunningServer>(
      TestConfig(), kernels::MakeCpuCorrector(1));
};

TEST_F(CalmBoundTest, IsAnnounced) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(v1::CorrectionService::NewStub(running_->channel())
                  ->GetServerInfo(&context, {}, &info)
                  .ok());
  EXPECT_THAT(info.features(), Contains("calm_bounds"));
}

TEST_F(CalmBoundTest, IsTheQuantileOfEightStepsAndStays) {
  const v1::Method method = CalmPreset("token_tis", 0.99, 2.0);
  TakeSteps(method, 8);
  std::vector<float> all;
  for (int64_t step = 0; step < 8; ++step) {
    for (const float log : StepLogs(step)) all.push_back(log);
  }
  std::sort(all.begin(), all.end());
  const double sorted = all[static_cast<size_t>(std::ceil(
                                0.99 * static_cast<double>(all.size()))) -
                            1];
  const v1::ResolvedBound bound = BoundOf(StepRequest(8, method));
  EXPECT_TRUE(bound.is_calm());
  EXPECT_EQ(bound.field(), kCalmPresetField);
  EXPECT_EQ(bound.calm_steps(), 8);
  EXPECT_EQ(bound.calm_weights(), 8 * kStepRows * kStepLength);
  EXPECT_GE(std::log(bound.value()), sorted);
  EXPECT_LE(std::log(bound.value()), sorted * std::pow(2.0, 0.25));
  // Another batch of the step, later steps, and a step that is run again.
  for (const int64_t step : {8, 8, 9, 30, 8}) {
    const v1::ResolvedBound later = BoundOf(StepRequest(step, method));
    EXPECT_TRUE(later.is_calm());
    EXPECT_EQ(later.value(), bound.value());
  }
  const v1::ResolvedBound early = BoundOf(StepRequest(5, method));
  EXPECT_FALSE(early.is_calm());
  EXPECT_EQ(early.value(), 2.0);
}

// The answer is that of the number, but for the note about it.
TEST_F(CalmBoundTest, AnswersAsWithTheNumber) {
  for (const bool is_preset : {true, false}) {
    const std::string run = is_preset ? "preset" : "config";
    const v1::Method method =
        is_preset ? CalmPreset("token_tis", 0.9, 1.5) : CalmConfig(0.9, 1.5);
    TakeSteps(method, 8, run);
    for (const int64_t step : {3, 8}) {
      v1::CorrectRequest request = StepRequest(step, method, run);
      v1::CorrectResponse calm = Correct(request);
      ASSERT_EQ(calm.resolved_bounds_size(), 1);
      EXPECT_EQ(calm.resolved_bounds(0).field(),
                is_preset ? kCalmPresetField : kCalmConfigField);
      const double value = calm.resolved_bounds(0).value();
      EXPECT_EQ(value < 1.5, step == 8);
      if (is_preset) {
        v1::Preset* const preset = request.mutable_method()->mutable_preset();
        preset->clear_calm_quantiles();
        (*preset->mutable_parameters())["upper"] = value;
      } else {
        v1::ImportanceWeight* const weight = request.mutable_method()
                                                 ->mutable_config()
                                                 ->mutable_importance_weight();
        weight->clear_upper_calm_quantile();
        weight->set_upper(value);
      }
      v1::CorrectResponse plain = Correct(request);
      EXPECT_EQ(plain.resolved_bounds_size(), 0);
      for (v1::CorrectResponse* each : {&calm, &plain}) {
        each->clear_resolved_bounds();
        each->clear_timing();
        each->clear_request_id();
      }
      EXPECT_EQ(calm.DebugString(), plain.DebugString());
    }
  }
}

TEST_F(CalmBoundTest, MethodsOfOtherWeightsHaveTheirOwnLevel) {
  const v1::Method tokens = CalmPreset("token_tis", 0.9, 2.0);
  v1::Method geometric = CalmConfig(0.9, 2.0);
  geometric.mutable_config()->mutable_importance_weight()->set_level(
      v1::LEVEL_GEOMETRIC);
  for (int64_t step = 0; step < 13; ++step) {
    BoundOf(StepRequest(step, tokens));
    BoundOf(StepRequest(step, geometric));
  }
  const v1::ResolvedBound of_tokens = BoundOf(StepRequest(20, tokens));
  const v1::ResolvedBound of_rows = BoundOf(StepRequest(20, geometric));
  ASSERT_TRUE(of_tokens.is_calm());
  ASSERT_TRUE(of_rows.is_calm()) << "100 rows are enough for 0.9";
  // The mean of 250 logs has a sixteenth of their spread.
  EXPECT_NEAR(std::log(of_tokens.value()), 0.128, 0.03);
  EXPECT_NEAR(std::log(of_rows.value()), 0.128 / std::sqrt(250.0), 0.003);
  // A preset and a config of the same weights share one.
  EXPECT_EQ(BoundOf(StepRequest(20, CalmConfig(0.9, 2.0))).value(),
            of_tokens.value());
  // Other runs have their own.
  EXPECT_FALSE(BoundOf(StepRequest(20, tokens, "other")).is_calm());
}

TEST_F(CalmBoundTest, StreamsCountToo) {
  const v1::Method method = CalmPreset("token_tis", 0.99, 2.0);
  for (int64_t step = 0; step < 9; ++step) {
    v1::CorrectResponse streamed;
    const grpc::Status status =
        Stream(running_->channel(), StepRequest(step, method), 0, &streamed);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(streamed.resolved_bounds_size(), 1);
    EXPECT_EQ(streamed.resolved_bounds(0).is_calm(), step == 8);
    EXPECT_EQ(streamed.resolved_bounds(0).calm_weights(),
              step * kStepRows * kStepLength);
  }
}

TEST_F(CalmBoundTest, RetriesAndBatchesWithoutMetricsDoNotCount) {
  const v1::Method method = CalmPreset("token_tis", 0.9, 2.0);
  v1::CorrectRequest request = StepRequest(0, method);
  request.set_request_id("id");
  BoundOf(request);
  EXPECT_EQ(BoundOf(request).calm_weights(), kStepRows * kStepLength);
  request = StepRequest(0, method);
  request.set_omit_metrics(true);
  const v1::CorrectResponse unmeasured = Correct(request);
  ASSERT_EQ(unmeasured.warnings_size(), 1);
  EXPECT_THAT(unmeasured.warnings(0),
              HasSubstr("its weights do not count for the run's calm level"));
  EXPECT_EQ(BoundOf(request).calm_weights(), kStepRows * kStepLength);
}

TEST_F(CalmBoundTest, WithoutUpperTheFirstStepsAreRefused) {
  const v1::Method bare = CalmPreset("token_tis", 0.99, 0.0);
  std::string why;
  EXPECT_THAT(Refused(StepRequest(0, bare), &why),
              ElementsAre(kCalmPresetField));
  EXPECT_THAT(why, HasSubstr("run 'r' has no calm level for it yet: 0 steps"));
  EXPECT_THAT(why, HasSubstr("8 steps, with 1000 weights"));
  EXPECT_THAT(Refused(StepRequest(0, CalmConfig(0.99, 0.0))),
              ElementsAre(kCalmConfigField));
  for (int64_t step = 1; step < 9; ++step) {
    BoundOf(StepRequest(step, CalmPreset("token_tis", 0.99, 2.0)));
  }
  EXPECT_TRUE(BoundOf(StepRequest(9, bare)).is_calm());
  EXPECT_THAT(Refused(StepRequest(4, bare)), ElementsAre(kCalmPresetField));
}

TEST_F(CalmBoundTest, ARestartForgetsTheLevel) {
  const v1::Method method = CalmPreset("token_tis", 0.9, 2.0);
  TakeSteps(method, 8);
  ASSERT_TRUE(BoundOf(StepRequest(8, method)).is_calm());
  Restart();
  const v1::ResolvedBound bound = BoundOf(StepRequest(8, method));
  EXPECT_FALSE(bound.is_calm());
  EXPECT_EQ(bound.value(), 2.0);
  EXPECT_THAT(Refused(StepRequest(9, CalmPreset("token_tis", 0.9, 0.0))),
              ElementsAre(kCalmPresetField));
}

TEST_F(CalmBoundTest, IsRefusedByName) {
  v1::CorrectRequest request =
      StepRequest(0, CalmPreset("token_tis", 0.9, 2.0));
  request.mutable_labels()->clear_run();
  request.mutable_labels()->clear_step();
  EXPECT_THAT(Refused(request), ElementsAre("labels.run", "labels.step"));
  for (const double quantile : {0.0, 0.5, 1.0, std::nan("")}) {
    EXPECT_THAT(Refused(StepRequest(0, CalmPreset("token_tis", quantile, 2.0))),
                ElementsAre(kCalmPresetField))
        << quantile;
    EXPECT_THAT(Refused(StepRequest(0, CalmConfig(quantile, 2.0))),
                ElementsAre(kCalmConfigField));
  }
  v1::Method lower = CalmPreset("icepop", 0.9, 5.0);
  (*lower.mutable_preset()->mutable_calm_quantiles())["lower"] = 0.9;
  EXPECT_THAT(Refused(StepRequest(0, lower)),
              ElementsAre("method.preset.calm_quantiles[lower]"));
  // Its parameters are a rule's.
  EXPECT_THAT(Refused(StepRequest(0, CalmPreset("geo_rs", 0.9, 0.0))),
              ElementsAre(kCalmPresetField));
  v1::Method after = CalmConfig(0.9, 2.0);
  after.mutable_config()->mutable_importance_weight()->set_after_rule(1);
  EXPECT_THAT(Refused(StepRequest(0, after)), ElementsAre(kCalmConfigField));
  v1::Method turn = CalmConfig(0.9, 2.0);
  turn.mutable_config()->mutable_importance_weight()->set_level(v1::LEVEL_TURN);
  EXPECT_THAT(Refused(StepRequest(0, turn)), ElementsAre(kCalmConfigField));
  v1::Method filtered = CalmConfig(0.9, 2.0);
  v1::SequenceFilter& filter =
      *filtered.mutable_config()->mutable_sequence_filter();
  filter.set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
  filter.set_upper(2.0);
  EXPECT_THAT(Refused(StepRequest(0, filtered)), ElementsAre(kCalmConfigField));
  v1::Method bad = CalmPreset("token_tis", 0.9, 2.0);
  (*bad.mutable_preset()->mutable_parameters())["upper"] = -1.0;
  EXPECT_THAT(Refused(StepRequest(0, bad)), Each("method.preset.parameters"));
}

TEST_F(CalmBoundTest, OtherCallsRefuseIt) {
  const auto fields = [](const grpc::Status& status) {
    std::vector<std::string> names;
    const auto detail = DetailOf<google::rpc::BadRequest>(status);
    for (const auto& each : detail.field_violations()) {
      names.push_back(each.field());
    }
    return names;
  };
  const auto stub = v1::CorrectionService::NewStub(running_->channel());
  v1::CorrectRequest part = StepRequest(0, CalmPreset("token_tis", 0.9, 2.0));
  part.set_partial_sums(true);
  const v1::CorrectResponse answer = Correct(part);
  v1::MergeSumsRequest merge;
  *merge.add_parts() = answer.sums();
  *merge.mutable_method() = part.method();
  {
    grpc::ClientContext context;
    v1::MergeSumsResponse merged;
    EXPECT_THAT(fields(stub->MergeSums(&context, merge, &merged)),
                ElementsAre("method"));
  }
  // The number of the answer is taken.
  v1::Preset* const preset = merge.mutable_method()->mutable_preset();
  preset->clear_calm_quantiles();
  (*preset->mutable_parameters())["upper"] = answer.resolved_bounds(0).value();
  grpc::ClientContext context;
  v1::MergeSumsResponse merged;
  const grpc::Status status = stub->MergeSums(&context, merge, &merged);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(CalmBoundTest, ARunMayDeclareIt) {
  const auto declare = [&](const v1::Method& method) {
    grpc::ClientContext context;
    v1::DeclareRunRequest request;
    request.mutable_labels()->set_run("r");
    *request.mutable_method() = method;
    v1::DeclareRunResponse response;
    return v1::CorrectionService::NewStub(running_->channel())
        ->DeclareRun(&context, request, &response);
  };
  ASSERT_TRUE(declare(CalmPreset("token_tis", 0.9, 2.0)).ok());
  for (int64_t step = 0; step < 10; ++step) {
    EXPECT_THAT(Correct(StepRequest(step, CalmPreset("token_tis", 0.9, 2.0)))
                    .warnings(),
                IsEmpty());
  }
  EXPECT_THAT(Correct(StepRequest(10, CalmConfig(0.9, 2.0))).warnings(),
              IsEmpty());
  EXPECT_THAT(
      Correct(StepRequest(10, CalmPreset("token_tis", 0.99, 2.0))).warnings(),
      Contains(HasSubstr("with other parameters")));
  v1::Method plain = CalmPreset("token_tis", 0.9, 2.0);
  plain.mutable_preset()->clear_calm_quantiles();
  EXPECT_THAT(Correct(StepRequest(10, plain)).warnings(),
              Contains(HasSubstr("with other parameters")));
  EXPECT_FALSE(declare(CalmPreset("token_tis", 2.0, 2.0)).ok());
}

}  // namespace
}  // namespace counterweight::server
