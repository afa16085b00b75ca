#include "tests/fuzz/stream_request.h"

#include <cstring>
#include <iterator>
#include <limits>
#include <string>

namespace counterweight::fuzz {
namespace {

// One method for each path through the kernels: one pass, two, a loss, a loss
// that divides by counts of the whole batch, random choices.
constexpr const char* kMethods[] = {
    "token_tis", "seq_tis", "geo_rs", "none",  "ppo_clip",
    "grpo",      "gspo",    "opsm",   "cispo", "geo_rs_token_tis_ppo_clip",
    "clip_cov",  "k3_rs",   "sapo",   "luspo", "token_tis_ppo_clip",
    "vespo"};

// Sets the layout and returns the number of positions.
int64_t TakeLayout(Input* input, v1::Layout* layout) {
  const auto rows = static_cast<int64_t>(input->TakeBelow(9));
  if (input->TakeBool()) {
    const auto length = static_cast<int64_t>(input->TakeBelow(32));
    layout->mutable_padded()->set_num_sequences(rows);
    layout->mutable_padded()->set_length(length);
    return rows * length;
  }
  int64_t positions = 0;
  layout->mutable_packed();
  for (int64_t i = 0; i < rows; ++i) {
    const auto length = static_cast<int64_t>(input->TakeBelow(32));
    layout->mutable_packed()->add_sequence_lengths(length);
    positions += length;
  }
  return positions;
}

// Numbers from -0.5 to -2 (bfloat16 is the upper half of float), all different
// from tensor to tensor.
void AddNumbers(v1::TensorRole role, int64_t positions, bool is_wide,
                v1::CorrectRequest* request) {
  v1::Tensor* const tensor = request->add_tensors();
  tensor->set_role(role);
  tensor->set_dtype(is_wide ? v1::D_TYPE_F32 : v1::D_TYPE_BF16);
  for (int64_t i = 0; i < positions; ++i) {
    const float value =
        -0.5F - static_cast<float>((i * 37 + role * 11) % 97) / 64.0F;
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    tensor->mutable_data()->append(is_wide ? bytes : bytes + 2,
                                   is_wide ? 4 : 2);
  }
}

void AddMask(int64_t positions, v1::CorrectRequest* request) {
  v1::Tensor* const tensor = request->add_tensors();
  tensor->set_role(v1::TENSOR_ROLE_RESPONSE_MASK);
  tensor->set_dtype(v1::D_TYPE_U8);
  for (int64_t i = 0; i < positions; ++i) {
    tensor->mutable_data()->push_back(i % 7 == 3 ? 0 : 1);
  }
}

}  // namespace

v1::CorrectRequest TakeRequest(Input* input) {
  v1::CorrectRequest request;
  // The server makes an id for a request without one.
  request.set_request_id("fuzz");
  request.mutable_method()->mutable_preset()->set_name(
      kMethods[input->TakeBelow(std::size(kMethods))]);
  const int64_t positions = TakeLayout(input, request.mutable_layout());
  const uint8_t options = input->TakeByte();
  const bool is_wide = (options & 1) != 0;
  const bool is_mask_first = (options & 2) != 0;
  const bool has_nan = (options & 0x1c) == 0x1c;
  if (is_mask_first) AddMask(positions, &request);
  for (const v1::TensorRole role :
       {v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS, v1::TENSOR_ROLE_OLD_LOG_PROBS,
        v1::TENSOR_ROLE_CURRENT_LOG_PROBS, v1::TENSOR_ROLE_ADVANTAGES}) {
    AddNumbers(role, positions, is_wide, &request);
  }
  if (!is_mask_first) AddMask(positions, &request);
  if (has_nan && positions > 0) {
    std::string* const data =
        request.mutable_tensors(is_mask_first ? 1 : 0)->mutable_data();
    data->replace(data->size() - 2, 2, "\xff\x7f");
  }
  return request;
}

v1::CorrectStreamRequest HeaderOf(const v1::CorrectRequest& request) {
  v1::CorrectStreamRequest header;
  *header.mutable_header() = request;
  for (v1::Tensor& tensor : *header.mutable_header()->mutable_tensors()) {
    tensor.clear_data();
  }
  return header;
}

}  // namespace counterweight::fuzz
