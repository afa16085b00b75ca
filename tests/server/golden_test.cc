// The goldens of every dialect through the server's own path in one process:
// CorrectRequest -> Decode -> CPU backend -> Encode -> CorrectResponse.
#include "tests/server/dialects/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/corrector.h"
#include "server/codec.h"

namespace counterweight::server {
namespace {

template <typename T>
void AddTensor(v1::TensorRole role, v1::DType dtype,
               const std::vector<T>& values, v1::CorrectRequest* request) {
  v1::Tensor& tensor = *request->add_tensors();
  tensor.set_role(role);
  tensor.set_dtype(dtype);
  tensor.set_data(values.data(), values.size() * sizeof(T));
}

v1::CorrectRequest RequestOf(const Golden& golden) {
  v1::CorrectRequest request;
  v1::PaddedLayout& layout = *request.mutable_layout()->mutable_padded();
  layout.set_num_sequences(golden.num_sequences);
  layout.set_length(golden.length);
  const auto add = [&](v1::TensorRole role, const GoldenTensor<float>& values) {
    if (values) AddTensor(role, v1::D_TYPE_F32, *values, &request);
  };
  add(v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, golden.rollout_log_probs);
  add(v1::TENSOR_ROLE_OLD_LOG_PROBS, golden.old_log_probs);
  add(v1::TENSOR_ROLE_CURRENT_LOG_PROBS, golden.current_log_probs);
  add(v1::TENSOR_ROLE_ADVANTAGES, golden.advantages);
  AddTensor(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, golden.response_mask,
            &request);
  v1::Dialect& dialect = *request.mutable_method()->mutable_dialect();
  dialect.set_system(golden.dialect);
  *dialect.mutable_block() = golden.block;
  return request;
}

// What a request comes to: violations, or a response.
struct Answer {
  Violations violations;
  v1::CorrectResponse response;
};

Answer Correct(const v1::CorrectRequest& request) {
  static kernels::Corrector& corrector =
      *kernels::MakeCpuCorrector(2).release();
  Answer answer;
  DecodedRequest decoded;
  answer.violations = Decode(request, RequestLimits(), &decoded);
  if (!answer.violations.empty()) return answer;
  const kernels::Outputs outputs = AllocateOutputs(decoded, &answer.response);
  const kernels::CorrectResult result =
      corrector.Correct(decoded.spec, decoded.batch, outputs);
  if (result.status == kernels::CorrectStatus::kNonFinite) {
    answer.violations.push_back(ToViolation(result.non_finite));
    return answer;
  }
  EXPECT_EQ(result.status, kernels::CorrectStatus::kOk);
  answer.violations = Encode(decoded, result.sums, &answer.response);
  return answer;
}

// Null if the response has no such tensor.
const v1::Tensor* FindTensor(const v1::CorrectResponse& response,
                             v1::TensorRole role) {
  for (const v1::Tensor& tensor : response.tensors()) {
    if (tensor.role() == role) return &tensor;
  }
  return nullptr;
}

template <typename T>
std::vector<T> Values(const v1::Tensor& tensor) {
  std::vector<T> values(tensor.data().size() / sizeof(T));
  std::memcpy(values.data(), tensor.data().data(), values.size() * sizeof(T));
  return values;
}

class GoldenTest : public testing::TestWithParam<Golden> {};

TEST_P(GoldenTest, MatchesOriginal) {
  const Golden& golden = GetParam();
  const Answer answer = Correct(RequestOf(golden));
  if (golden.error) {
    EXPECT_TRUE(Blames(answer.violations, golden))
        << *golden.error << "\nblames " << BlamedField(golden);
    for (const Violation& violation : answer.violations) {
      EXPECT_FALSE(violation.description.empty()) << violation.field;
    }
    return;
  }
  for (const Violation& violation : answer.violations) {
    ADD_FAILURE() << violation.field << ": " << violation.description;
  }
  ASSERT_TRUE(answer.violations.empty());

  const v1::Tensor* mask =
      FindTensor(answer.response, v1::TENSOR_ROLE_KEEP_MASK);
  ASSERT_NE(mask, nullptr);
  ASSERT_EQ(mask->data().size(), golden.response_mask.size());
  std::vector<double> weights;
  const v1::Tensor* tensor =
      FindTensor(answer.response, v1::TENSOR_ROLE_WEIGHTS);
  if (tensor != nullptr) {
    EXPECT_EQ(tensor->dtype(), v1::D_TYPE_F32);
    const std::vector<float> floats = Values<float>(*tensor);
    ASSERT_EQ(floats.size(), golden.response_mask.size());
    weights.assign(floats.begin(), floats.end());
  }
  const MetricMap metrics(answer.response.metrics().begin(),
                          answer.response.metrics().end());
  EXPECT_THAT(Differences(golden, tensor == nullptr ? nullptr : &weights,
                          Values<uint8_t>(*mask), metrics),
              testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Verl, GoldenTest,
                         testing::ValuesIn(ReadGoldens("verl")),
                         [](const testing::TestParamInfo<Golden>& parameter) {
                           return parameter.param.name;
                         });

}  // namespace
}  // namespace counterweight::server
