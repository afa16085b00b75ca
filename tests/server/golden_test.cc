// The goldens of every dialect through the server's own path in one process:
// CorrectRequest -> Decode -> CPU backend -> Encode -> CorrectResponse.
#include "tests/server/dialects/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/corrector.h"
#include "server/engine/codec.h"
#include "server/engine/correction_run.h"
#include "tests/server/dialects/golden_request.h"

namespace counterweight::server {
namespace {

// Result of a request: violations, or a response.
struct Answer {
  Violations violations;
  v1::CorrectResponse response;
};

Answer Correct(const v1::CorrectRequest& request) {
  static kernels::Corrector& corrector =
      *kernels::MakeCpuCorrector(2).release();
  Answer answer;
  const Result<Decoded> result = Decode(request, RequestLimits(), {});
  const Decoded& decoded = result.value;
  answer.violations = result.violations;
  if (!answer.violations.empty()) return answer;
  const kernels::Outputs outputs = AllocateOutputs(
      decoded.outputs, decoded.layout, PlaceInMessage, &answer.response);
  const kernels::CorrectResult computed =
      BeginCorrection(&corrector, decoded, BatchOf(decoded),
                      VersionsOf(decoded), outputs, {})
          ->Finish();
  if (computed.status == kernels::CorrectStatus::kNonFinite) {
    answer.violations.push_back(ToViolation(computed.non_finite));
    return answer;
  }
  EXPECT_EQ(computed.status, kernels::CorrectStatus::kOk);
  answer.violations = Encode(decoded, computed, &answer.response);
  return answer;
}

// Returns a tensor of the response, or nothing.
template <typename T>
std::optional<std::vector<T>> FindTensor(const v1::CorrectResponse& response,
                                         v1::TensorRole role, v1::DType dtype) {
  for (const v1::Tensor& tensor : response.tensors()) {
    if (tensor.role() != role) continue;
    EXPECT_EQ(tensor.dtype(), dtype);
    std::vector<T> values(tensor.data().size() / sizeof(T));
    std::memcpy(values.data(), tensor.data().data(), values.size() * sizeof(T));
    return values;
  }
  return std::nullopt;
}

GoldenTensor<double> FindFloats(const v1::CorrectResponse& response,
                                v1::TensorRole role) {
  const auto floats = FindTensor<float>(response, role, v1::D_TYPE_F32);
  if (!floats) return std::nullopt;
  return std::vector<double>(floats->begin(), floats->end());
}

GoldenAnswer ToGoldenAnswer(const v1::CorrectResponse& response) {
  GoldenAnswer answer;
  answer.weights = FindFloats(response, v1::TENSOR_ROLE_WEIGHTS);
  answer.keep_mask =
      FindTensor<uint8_t>(response, v1::TENSOR_ROLE_KEEP_MASK, v1::D_TYPE_U8)
          .value_or(std::vector<uint8_t>());
  if (response.has_loss()) answer.loss = response.loss();
  answer.gradient = FindFloats(response, v1::TENSOR_ROLE_GRADIENT);
  answer.metrics = {response.metrics().begin(), response.metrics().end()};
  return answer;
}

class GoldenTest : public testing::TestWithParam<Golden> {};

TEST_P(GoldenTest, MatchesOriginal) {
  const Golden& golden = GetParam();
  const Answer answer = Correct(RequestOf(golden));
  if (golden.error) {
    EXPECT_TRUE(Blames(answer.violations, golden))
        << *golden.error << "\nblames "
        << testing::PrintToString(golden.blamed);
    for (const Violation& violation : answer.violations) {
      EXPECT_FALSE(violation.description.empty()) << violation.field;
    }
    return;
  }
  for (const Violation& violation : answer.violations) {
    ADD_FAILURE() << violation.field << ": " << violation.description;
  }
  ASSERT_TRUE(answer.violations.empty());

  const GoldenAnswer ours = ToGoldenAnswer(answer.response);
  ASSERT_EQ(ours.keep_mask.size(), golden.response_mask.size());
  EXPECT_THAT(Differences(golden, ours), testing::IsEmpty());
}

std::string NameOf(const testing::TestParamInfo<Golden>& parameter) {
  return parameter.param.name;
}

INSTANTIATE_TEST_SUITE_P(Areal, GoldenTest,
                         testing::ValuesIn(ReadGoldens("areal")), NameOf);
INSTANTIATE_TEST_SUITE_P(DatedOpenrlhf, GoldenTest,
                         testing::ValuesIn(ReadGoldens("dated/openrlhf")),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(DatedTrl, GoldenTest,
                         testing::ValuesIn(ReadGoldens("dated/trl")), NameOf);
INSTANTIATE_TEST_SUITE_P(DatedVerl, GoldenTest,
                         testing::ValuesIn(ReadGoldens("dated/verl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Miles, GoldenTest,
                         testing::ValuesIn(ReadGoldens("miles")), NameOf);
INSTANTIATE_TEST_SUITE_P(MsSwift, GoldenTest,
                         testing::ValuesIn(ReadGoldens("ms_swift")), NameOf);
INSTANTIATE_TEST_SUITE_P(NemoRl, GoldenTest,
                         testing::ValuesIn(ReadGoldens("nemo_rl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Openrlhf, GoldenTest,
                         testing::ValuesIn(ReadGoldens("openrlhf")), NameOf);
INSTANTIATE_TEST_SUITE_P(PrimeRl, GoldenTest,
                         testing::ValuesIn(ReadGoldens("prime_rl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Roll, GoldenTest,
                         testing::ValuesIn(ReadGoldens("roll")), NameOf);
INSTANTIATE_TEST_SUITE_P(Skyrl, GoldenTest,
                         testing::ValuesIn(ReadGoldens("skyrl")), NameOf);
INSTANTIATE_TEST_SUITE_P(Slime, GoldenTest,
                         testing::ValuesIn(ReadGoldens("slime")), NameOf);
INSTANTIATE_TEST_SUITE_P(Tinker, GoldenTest,
                         testing::ValuesIn(ReadGoldens("tinker")), NameOf);
INSTANTIATE_TEST_SUITE_P(Trl, GoldenTest, testing::ValuesIn(ReadGoldens("trl")),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Verl, GoldenTest,
                         testing::ValuesIn(ReadGoldens("verl")), NameOf);

}  // namespace
}  // namespace counterweight::server
