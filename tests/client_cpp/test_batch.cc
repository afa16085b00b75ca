#include "tests/client_cpp/test_batch.h"

#include <bit>
#include <numeric>
#include <random>

#include "client/cpp/method.h"
#include "gtest/gtest.h"

namespace counterweight::client {

TestBatch::TestBatch(int64_t rows, int64_t length) {
  SetPadded(rows, length, &layout_);
  Draw(static_cast<size_t>(rows * length));
}

TestBatch::TestBatch(const std::vector<int64_t>& lengths) {
  SetPacked(lengths, &layout_);
  Draw(std::accumulate(lengths.begin(), lengths.end(), size_t{0}));
}

void TestBatch::Draw(size_t positions) {
  std::mt19937 random(5);
  std::exponential_distribution<float> surprise(2.0F);
  std::normal_distribution<float> noise(0.0F, 0.5F);
  for (size_t i = 0; i < positions; ++i) {
    rollout_.push_back(-surprise(random));
    old_.push_back(rollout_.back() + noise(random));
    current_.push_back(old_.back() + noise(random));
    advantages_.push_back(noise(random));
    mask_.push_back(random() % 5 != 0);
  }
}

Request TestBatch::Weights() const {
  Request request = layout_;
  *request.header.mutable_method() = Preset("token_tis");
  request.header.set_request_id("weights");
  request.inputs = {Float32(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, rollout_),
                    Float32(v1::TENSOR_ROLE_OLD_LOG_PROBS, old_),
                    ResponseMask(mask_)};
  return request;
}

Request TestBatch::Everything() const {
  Request request = Weights();
  request.header.set_request_id("everything");
  v1::CorrectionConfig* const config =
      request.header.mutable_method()->mutable_config();
  v1::ImportanceWeight* const weight = config->mutable_importance_weight();
  weight->set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
  weight->set_level(v1::LEVEL_SEQUENCE);
  weight->set_bound(v1::BOUND_TRUNCATE);
  weight->set_upper(2);
  v1::RejectionRule* const rule = config->add_rules();
  rule->set_ratio_source(v1::RATIO_SOURCE_OLD_ROLLOUT);
  rule->set_estimator(v1::ESTIMATOR_K3);
  rule->set_aggregation(v1::AGGREGATION_TOKEN);
  rule->set_upper(0.3);
  v1::PolicyLoss* const loss = config->mutable_policy_loss();
  loss->set_surrogate(v1::SURROGATE_PPO_CLIP);
  loss->set_aggregation(v1::LOSS_AGGREGATION_TOKEN_MEAN);
  loss->set_denominator(v1::LOSS_DENOMINATOR_ORIGINAL);
  loss->set_clip_low(0.2);
  loss->set_clip_high(0.2);
  request.inputs.push_back(
      Float32(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, current_));
  request.inputs.push_back(Float32(v1::TENSOR_ROLE_ADVANTAGES, advantages_));
  request.outputs = {{.role = v1::TENSOR_ROLE_GRADIENT},
                     {.role = v1::TENSOR_ROLE_WEIGHTS},
                     {.role = v1::TENSOR_ROLE_SEQUENCE_REASONS},
                     {.role = v1::TENSOR_ROLE_KEEP_MASK},
                     {.role = v1::TENSOR_ROLE_TOKEN_REASONS}};
  return request;
}

v1::CorrectRequest ToMessage(const Request& request) {
  v1::CorrectRequest message = request.header;
  for (const Input& input : request.inputs) {
    v1::Tensor* const tensor = message.add_tensors();
    tensor->set_role(input.role);
    tensor->set_dtype(input.dtype);
    tensor->set_data(input.data, input.bytes);
  }
  for (const Output& output : request.outputs) message.add_outputs(output.role);
  return message;
}

std::string Bytes(const Response& response, v1::TensorRole role) {
  const OutputTensor* const output = response.Find(role);
  if (output == nullptr) return "";
  return {reinterpret_cast<const char*>(output->data), output->bytes};
}

void ExpectSame(const Response& have, const v1::CorrectResponse& want) {
  ASSERT_EQ(have.outputs.size(), static_cast<size_t>(want.tensors_size()));
  for (const v1::Tensor& tensor : want.tensors()) {
    EXPECT_TRUE(Bytes(have, tensor.role()) == tensor.data())
        << v1::TensorRole_Name(tensor.role());
  }
  EXPECT_EQ(have.message.has_loss(), want.has_loss());
  EXPECT_EQ(std::bit_cast<uint64_t>(have.message.loss()),
            std::bit_cast<uint64_t>(want.loss()));
  ASSERT_EQ(have.message.metrics_size(), want.metrics_size());
  for (const auto& [name, value] : want.metrics()) {
    const auto found = have.message.metrics().find(name);
    ASSERT_NE(found, have.message.metrics().end()) << name;
    EXPECT_EQ(std::bit_cast<uint64_t>(found->second),
              std::bit_cast<uint64_t>(value))
        << name;
  }
  ASSERT_EQ(have.message.rules_size(), want.rules_size());
  for (int i = 0; i < want.rules_size(); ++i) {
    EXPECT_EQ(have.message.rules(i).SerializeAsString(),
              want.rules(i).SerializeAsString());
  }
}

}  // namespace counterweight::client
