#include "server/codec_outputs.h"

#include <algorithm>
#include <string>

namespace counterweight::server {

void DecodeOutputs(const v1::CorrectRequest& request, bool has_method,
                   DecodedRequest* decoded, Violations* violations) {
  const bool has_weights = decoded->spec.weight.level != kernels::Level::kNone;
  const bool has_loss =
      decoded->spec.loss.surrogate != kernels::Surrogate::kNone;
  for (int i = 0; i < request.outputs_size(); ++i) {
    const auto role = static_cast<v1::TensorRole>(request.outputs(i));
    const std::string field = "outputs[" + std::to_string(i) + "]";
    if (std::find(decoded->outputs.begin(), decoded->outputs.end(), role) !=
        decoded->outputs.end()) {
      violations->push_back({field, "is asked for twice"});
      continue;
    }
    switch (static_cast<int>(role)) {
      case v1::TENSOR_ROLE_WEIGHTS:
        if (has_method && !has_weights) {
          violations->push_back(
              {field,
               "WEIGHTS were asked for, but the method has no "
               "importance weight"});
        }
        break;
      case v1::TENSOR_ROLE_KEEP_MASK:
      case v1::TENSOR_ROLE_TOKEN_REASONS:
      case v1::TENSOR_ROLE_SEQUENCE_REASONS:
        break;
      case v1::TENSOR_ROLE_GRADIENT:
        if (has_method && !has_loss) {
          violations->push_back(
              {field, "GRADIENT was asked for, but the method has no loss"});
        }
        break;
      default:
        violations->push_back(
            {field,
             "is not an output: WEIGHTS, KEEP_MASK, TOKEN_REASONS, "
             "SEQUENCE_REASONS or GRADIENT"});
    }
    decoded->outputs.push_back(role);
  }
  if (request.outputs_size() == 0) {
    if (has_weights) decoded->outputs.push_back(v1::TENSOR_ROLE_WEIGHTS);
    decoded->outputs.push_back(v1::TENSOR_ROLE_KEEP_MASK);
    if (has_loss) decoded->outputs.push_back(v1::TENSOR_ROLE_GRADIENT);
  }
}

kernels::Outputs AllocateOutputs(const DecodedRequest& decoded,
                                 v1::CorrectResponse* response) {
  kernels::Outputs outputs;
  const auto positions = static_cast<size_t>(decoded.num_positions);
  const auto sequences = static_cast<size_t>(decoded.batch.num_sequences);
  for (const v1::TensorRole role : decoded.outputs) {
    v1::Tensor* tensor = response->add_tensors();
    tensor->set_role(role);
    std::string* data = tensor->mutable_data();
    if (role == v1::TENSOR_ROLE_WEIGHTS) {
      tensor->set_dtype(v1::D_TYPE_F32);
      data->resize(positions * sizeof(float));
      outputs.weights = reinterpret_cast<float*>(data->data());
    } else if (role == v1::TENSOR_ROLE_KEEP_MASK) {
      tensor->set_dtype(v1::D_TYPE_U8);
      data->resize(positions);
      outputs.keep_mask = reinterpret_cast<uint8_t*>(data->data());
    } else if (role == v1::TENSOR_ROLE_TOKEN_REASONS) {
      tensor->set_dtype(v1::D_TYPE_U16);
      data->resize(positions * sizeof(uint16_t));
      outputs.token_reasons = reinterpret_cast<uint16_t*>(data->data());
    } else if (role == v1::TENSOR_ROLE_SEQUENCE_REASONS) {
      tensor->set_dtype(v1::D_TYPE_U16);
      data->resize(sequences * sizeof(uint16_t));
      outputs.sequence_reasons = reinterpret_cast<uint16_t*>(data->data());
    } else if (role == v1::TENSOR_ROLE_GRADIENT) {
      tensor->set_dtype(v1::D_TYPE_F32);
      data->resize(positions * sizeof(float));
      outputs.gradient = reinterpret_cast<float*>(data->data());
    }
  }
  return outputs;
}

}  // namespace counterweight::server
