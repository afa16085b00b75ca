// The newest steps of a run: their parts add up without an error.
#include "server/observe/run_steps.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "server/engine/codec.h"
#include "server/engine/codec_publication.h"

namespace counterweight::server {
namespace {

// A batch of `rows` rows of three tokens, as a part of a step.
struct Part {
  PublishedBatch batch;
  StepPart part;
};

Part Corrected(const std::vector<float>& log_ratios, int64_t step,
               const char* preset = "token_tis") {
  v1::CorrectRequest request;
  request.mutable_labels()->set_step(step);
  request.mutable_method()->mutable_preset()->set_name(preset);
  auto* const padded = request.mutable_layout()->mutable_padded();
  padded->set_num_sequences(static_cast<int64_t>(log_ratios.size()));
  padded->set_length(1);
  const auto add = [&](v1::TensorRole role, v1::DType dtype, const auto& data) {
    v1::Tensor* const tensor = request.add_tensors();
    tensor->set_role(role);
    tensor->set_dtype(dtype);
    tensor->set_data(data.data(), data.size() * sizeof(data[0]));
  };
  const std::vector<float> rollout(log_ratios.size(), -1.0f);
  std::vector<float> old = rollout;
  for (size_t i = 0; i < old.size(); ++i) old[i] += log_ratios[i];
  const std::vector<uint8_t> mask(log_ratios.size(), 1);
  add(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, v1::D_TYPE_F32, rollout);
  add(v1::TENSOR_ROLE_OLD_LOG_PROBS, v1::D_TYPE_F32, old);
  add(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, mask);
  const Result<Decoded> decoded = Decode(request, {}, {});
  EXPECT_TRUE(decoded.ok());
  v1::CorrectResponse response;
  const kernels::CorrectResult result = kernels::MakeCpuCorrector(1)->Correct(
      decoded.value.method.spec, BatchOf(decoded.value),
      AllocateOutputs(decoded.value.outputs, decoded.value.layout,
                      PlaceInMessage, &response));
  return {Published(decoded.value.method.spec, {}, result.sums),
          PartOf(request, decoded.value, result.partial).value()};
}

TEST(RunSteps, PartsInAnyOrderAreOneBatch) {
  const Part whole = Corrected({0.1f, 1e-6f, -0.3f, 2.0f}, 5);
  const Part a = Corrected({1e-6f, 2.0f}, 5);
  const Part b = Corrected({-0.3f, 0.1f}, 5);
  for (const auto& parts : {std::vector{&a, &b}, std::vector{&b, &a}}) {
    RunSteps steps;
    StepBatch step;
    for (const Part* part : parts) {
      ASSERT_TRUE(steps.Add(part->part, part->batch, &step));
    }
    EXPECT_EQ(step.step, 5);
    EXPECT_EQ(step.parts, 2);
    EXPECT_TRUE(step.is_newest);
    EXPECT_EQ(step.batch.sums.drift.k3, whole.batch.sums.drift.k3);
    EXPECT_EQ(step.batch.sums.weight.weight_squared,
              whole.batch.sums.weight.weight_squared);
    EXPECT_EQ(step.batch.sums.tokens, 4);
    EXPECT_EQ(step.batch.sums.weight.range.max,
              whole.batch.sums.weight.range.max);
  }
}

TEST(RunSteps, KeepsTheNewestTwo) {
  RunSteps steps;
  StepBatch step;
  const auto add = [&](int64_t number) {
    const Part part = Corrected({0.5f}, number);
    return steps.Add(part.part, part.batch, &step);
  };
  ASSERT_TRUE(add(10));
  ASSERT_TRUE(add(20));
  ASSERT_TRUE(add(10));
  EXPECT_EQ(step.parts, 2);
  EXPECT_FALSE(step.is_newest);
  EXPECT_FALSE(add(9));
  ASSERT_TRUE(add(15));
  EXPECT_FALSE(step.is_newest);
  EXPECT_FALSE(add(10)) << "15 and 20 are newer";
  ASSERT_TRUE(add(20));
  EXPECT_EQ(step.parts, 2);
  EXPECT_TRUE(step.is_newest);
}

// Its gauges must not stand still until it has caught up.
TEST(RunSteps, ARunThatGoesBackBeginsAnew) {
  RunSteps steps;
  StepBatch step;
  const auto add = [&](int64_t number) {
    const Part part = Corrected({0.5f}, number);
    return steps.Add(part.part, part.batch, &step);
  };
  ASSERT_TRUE(add(1000));
  ASSERT_TRUE(add(1001));
  for (int i = 1; i < RunSteps::kMostLate; ++i) EXPECT_FALSE(add(900)) << i;
  ASSERT_TRUE(add(1001));  // they were late
  for (int i = 1; i < RunSteps::kMostLate; ++i) EXPECT_FALSE(add(900)) << i;
  ASSERT_TRUE(add(900));
  EXPECT_TRUE(step.is_newest);
  EXPECT_EQ(step.parts, 1);
  ASSERT_TRUE(add(901));
  EXPECT_TRUE(step.is_newest);
  EXPECT_FALSE(add(1) || add(2));
}

TEST(RunSteps, MethodsOfAStepAreApartAndBounded) {
  RunSteps steps;
  StepBatch step;
  const auto add = [&](const char* preset) {
    const Part part = Corrected({0.5f}, 1, preset);
    EXPECT_TRUE(steps.Add(part.part, part.batch, &step));
    return step.parts;
  };
  EXPECT_EQ(add("token_tis"), 1);
  EXPECT_EQ(add("seq_tis"), 1);
  EXPECT_EQ(add("token_tis"), 2);
  EXPECT_EQ(add("icepop"), 1);
  EXPECT_EQ(add("trl_token_mask"), 1);
  // The fifth takes the place of the first.
  EXPECT_EQ(add("seq_mis"), 1);
  EXPECT_EQ(add("seq_tis"), 2);
  EXPECT_EQ(add("token_tis"), 1);
}

}  // namespace
}  // namespace counterweight::server
