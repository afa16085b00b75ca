#include "tests/server/decoded_answers.h"

#include "kernels/corrector.h"
#include "server/engine/codec_tensors.h"
#include "server/engine/correction_run.h"

namespace counterweight::server {

std::vector<std::string> Answer::fields() const {
  std::vector<std::string> fields;
  for (const Violation& violation : violations) {
    fields.push_back(violation.field);
  }
  return fields;
}

std::vector<float> Answer::numbers(v1::TensorRole role) const {
  for (const v1::Tensor& tensor : response.tensors()) {
    if (tensor.role() != role) continue;
    const auto* data = reinterpret_cast<const float*>(tensor.data().data());
    return {data, data + tensor.data().size() / sizeof(float)};
  }
  return {};
}

Answer AnswerOf(const v1::CorrectRequest& request) {
  static kernels::Corrector& corrector =
      *kernels::MakeCpuCorrector(1).release();
  Answer answer;
  const Result<Decoded> result = Decode(request, {}, {});
  const Decoded& decoded = result.value;
  answer.violations = result.violations;
  answer.warnings = decoded.warnings;
  if (!answer.violations.empty()) return answer;
  const kernels::Outputs outputs = AllocateOutputs(
      decoded.outputs, decoded.layout, PlaceInMessage, &answer.response);
  const kernels::CorrectResult computed =
      BeginCorrection(&corrector, decoded, BatchOf(decoded),
                      VersionsOf(decoded), outputs, {})
          ->Finish();
  if (computed.status != kernels::CorrectStatus::kOk) {
    answer.violations.push_back(ToViolation(computed.non_finite));
    return answer;
  }
  answer.violations = Encode(decoded, computed, &answer.response);
  return answer;
}

void AddNumbers(v1::TensorRole role, const std::vector<float>& values,
                v1::CorrectRequest* request) {
  v1::Tensor* tensor = request->add_tensors();
  tensor->set_role(role);
  tensor->set_dtype(v1::D_TYPE_F32);
  tensor->set_data(values.data(), values.size() * sizeof(float));
}

void AddMask(const std::string& mask, v1::CorrectRequest* request) {
  v1::Tensor* tensor = request->add_tensors();
  tensor->set_role(v1::TENSOR_ROLE_RESPONSE_MASK);
  tensor->set_dtype(v1::D_TYPE_U8);
  tensor->set_data(mask);
}

}  // namespace counterweight::server
