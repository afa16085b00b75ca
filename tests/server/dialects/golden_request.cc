#include "tests/server/dialects/golden_request.h"

#include <vector>

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

}  // namespace

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
  add(v1::TENSOR_ROLE_REF_LOG_PROBS, golden.ref_log_probs);
  add(v1::TENSOR_ROLE_ADVANTAGES, golden.advantages);
  AddTensor(v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, golden.response_mask,
            &request);
  v1::Dialect& dialect = *request.mutable_method()->mutable_dialect();
  dialect.set_system(golden.dialect);
  *dialect.mutable_block() = golden.block;
  dialect.set_release(golden.release);
  request.add_outputs(v1::TENSOR_ROLE_KEEP_MASK);
  if (golden.weights) request.add_outputs(v1::TENSOR_ROLE_WEIGHTS);
  if (AsksForLoss(golden)) request.add_outputs(v1::TENSOR_ROLE_GRADIENT);
  return request;
}

}  // namespace counterweight::server
