#include "server/engine/codec_outputs.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "server/engine/codec_memory.h"
#include "server/engine/codec_tensors.h"

namespace counterweight::server {
namespace {

// What an output of the wire is in the kernels.
struct OutputKind {
  v1::TensorRole role;
  v1::DType dtype;
  bool is_per_sequence;
  void (*place)(std::byte* data, kernels::Outputs* outputs);
};

template <auto member>
void Place(std::byte* data, kernels::Outputs* outputs) {
  auto& place = outputs->*member;
  place = reinterpret_cast<std::remove_reference_t<decltype(place)>>(data);
}

constexpr OutputKind kOutputKinds[] = {
    {v1::TENSOR_ROLE_WEIGHTS, v1::D_TYPE_F32, false,
     Place<&kernels::Outputs::weights>},
    {v1::TENSOR_ROLE_KEEP_MASK, v1::D_TYPE_U8, false,
     Place<&kernels::Outputs::keep_mask>},
    {v1::TENSOR_ROLE_TOKEN_REASONS, v1::D_TYPE_U16, false,
     Place<&kernels::Outputs::token_reasons>},
    {v1::TENSOR_ROLE_SEQUENCE_REASONS, v1::D_TYPE_U16, true,
     Place<&kernels::Outputs::sequence_reasons>},
    {v1::TENSOR_ROLE_GRADIENT, v1::D_TYPE_F32, false,
     Place<&kernels::Outputs::gradient>},
};

const OutputKind* FindOutput(v1::TensorRole role) {
  for (const OutputKind& kind : kOutputKinds) {
    if (kind.role == role) return &kind;
  }
  return nullptr;
}

// Any kind does for a role that is no output: its request is refused.
const OutputKind& KindOf(v1::TensorRole role) {
  const OutputKind* const kind = FindOutput(role);
  return kind == nullptr ? kOutputKinds[0] : *kind;
}

int64_t BytesOf(v1::TensorRole role, const DecodedRequest& decoded) {
  const OutputKind& kind = KindOf(role);
  const int64_t count = kind.is_per_sequence ? decoded.batch.num_sequences
                                             : decoded.num_positions;
  return count * ElementSize(kind.dtype);
}

// What [data, data + bytes) shares bytes with, as a sentence; empty: nothing.
std::string Overlap(const std::byte* data, int64_t bytes,
                    const DecodedRequest& decoded) {
  const auto shares = [&](const std::byte* other, int64_t other_bytes) {
    return data < other + other_bytes && other < data + bytes;
  };
  for (const auto& [role, destination] : decoded.destinations) {
    if (shares(destination.data, BytesOf(role, decoded))) {
      return "shares bytes with another destination";
    }
  }
  // The same device memory may be registered for both.
  for (const auto& input : decoded.shared_inputs) {
    if (shares(input.data(), static_cast<int64_t>(input.size()))) {
      return "shares bytes with an input, which may be read again after it was "
             "written";
    }
  }
  return "";
}

}  // namespace

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
    if (FindOutput(role) == nullptr) {
      violations->push_back(
          {field,
           "is not an output: WEIGHTS, KEEP_MASK, TOKEN_REASONS, "
           "SEQUENCE_REASONS or GRADIENT"});
    } else if (role == v1::TENSOR_ROLE_WEIGHTS && has_method && !has_weights) {
      violations->push_back({field,
                             "WEIGHTS were asked for, but the method has no "
                             "importance weight"});
    } else if (role == v1::TENSOR_ROLE_GRADIENT && has_method && !has_loss) {
      violations->push_back(
          {field, "GRADIENT was asked for, but the method has no loss"});
    }
    decoded->outputs.push_back(role);
  }
  if (request.outputs_size() == 0) {
    if (has_weights) decoded->outputs.push_back(v1::TENSOR_ROLE_WEIGHTS);
    decoded->outputs.push_back(v1::TENSOR_ROLE_KEEP_MASK);
    if (has_loss) decoded->outputs.push_back(v1::TENSOR_ROLE_GRADIENT);
  }
}

void DecodeDestinations(const v1::CorrectRequest& request,
                        const PayloadSource& source, bool has_layout,
                        DecodedRequest* decoded, Violations* violations) {
  for (int i = 0; i < request.destinations_size(); ++i) {
    const v1::Tensor& tensor = request.destinations(i);
    const std::string at = "destinations[" + std::to_string(i) + "]";
    const v1::TensorRole role = tensor.role();
    if (std::find(decoded->outputs.begin(), decoded->outputs.end(), role) ==
        decoded->outputs.end()) {
      violations->push_back({at + ".role", "is not among the outputs"});
      continue;
    }
    const OutputKind& kind = KindOf(role);
    if (decoded->destinations.contains(role)) {
      violations->push_back({at + ".role", "was sent twice"});
    } else if (source.is_stream) {
      violations->push_back({at, "is for Correct; a stream sends its outputs"});
    } else if (tensor.dtype() != kind.dtype) {
      violations->push_back({at + ".dtype", "must be the output's, " +
                                                v1::DType_Name(kind.dtype)});
    } else if (!tensor.data().empty()) {
      violations->push_back({at + ".data", "must be empty"});
    } else if (has_layout) {
      const RangeNeed need{RegionAccess::kWrite, BytesOf(role, *decoded),
                           ElementSize(kind.dtype)};
      std::byte* const data =
          FindRange(tensor.shared_memory(), need, source.regions,
                    at + ".shared_memory", decoded, violations)
              .data;
      if (data == nullptr) continue;
      const std::string overlap = Overlap(data, need.bytes, *decoded);
      if (!overlap.empty()) {
        violations->push_back({at + ".shared_memory", overlap});
      }
      decoded->destinations[role] = {tensor.shared_memory(), data};
    }
  }
}

int64_t OutputBytes(const DecodedRequest& decoded) {
  int64_t bytes = 0;
  for (const v1::TensorRole role : decoded.outputs) {
    if (decoded.destinations.contains(role)) continue;
    bytes += Aligned(BytesOf(role, decoded));
  }
  return bytes;
}

kernels::Outputs AllocateOutputs(const DecodedRequest& decoded,
                                 const OutputPlace& place,
                                 v1::CorrectResponse* response) {
  kernels::Outputs outputs;
  for (const v1::TensorRole role : decoded.outputs) {
    v1::Tensor* const tensor = response->add_tensors();
    tensor->set_role(role);
    tensor->set_dtype(KindOf(role).dtype);
    std::byte* data = nullptr;
    const auto destination = decoded.destinations.find(role);
    if (destination != decoded.destinations.end()) {
      *tensor->mutable_shared_memory() = destination->second.range;
      data = destination->second.data;
    } else {
      data = place(tensor, BytesOf(role, decoded));
    }
    KindOf(role).place(data, &outputs);
  }
  return outputs;
}

std::byte* PlaceInMessage(v1::Tensor* tensor, int64_t bytes) {
  std::string* const data = tensor->mutable_data();
  data->resize(static_cast<size_t>(bytes));
  return reinterpret_cast<std::byte*>(data->data());
}

}  // namespace counterweight::server
