#include "server/engine/codec_outputs.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/engine/codec_memory.h"
#include "server/engine/codec_tensors.h"

namespace counterweight::server {
namespace {

// The kernels' form of a wire output.
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

// Returns any kind for a role that is not an output: its request is refused.
const OutputKind& KindOf(v1::TensorRole role) {
  const OutputKind* const kind = FindOutput(role);
  return kind == nullptr ? kOutputKinds[0] : *kind;
}

// True if a method may lack the output, which only the server knows.
bool DependsOnMethod(v1::TensorRole role) {
  return role == v1::TENSOR_ROLE_WEIGHTS || role == v1::TENSOR_ROLE_GRADIENT;
}

bool IsAmong(const std::vector<v1::TensorRole>& roles, v1::TensorRole role) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

// Names the object that shares bytes with [data, data + bytes) in a sentence;
// empty: none.
std::string Overlap(const std::byte* data, int64_t bytes, const Layout& layout,
                    const Tensors& tensors, const Outputs& outputs) {
  const auto shares = [&](const std::byte* other, int64_t other_bytes) {
    return data < other + other_bytes && other < data + bytes;
  };
  for (const auto& [role, destination] : outputs.destinations) {
    if (shares(destination.data, OutputBytes(role, layout))) {
      return "shares bytes with another destination";
    }
  }
  // The same device memory may be registered for both.
  for (const auto& input : tensors.shared_inputs) {
    if (shares(input.data(), static_cast<int64_t>(input.size()))) {
      return "shares bytes with an input, which may be read again after it was "
             "written";
    }
  }
  return "";
}

Result<std::vector<v1::TensorRole>> ReadRoles(const v1::CorrectRequest& request,
                                              const Result<Method>& method) {
  Result<std::vector<v1::TensorRole>> result;
  const kernels::CorrectionSpec& spec = method.value.spec;
  const bool has_weights = spec.weight.level != kernels::Level::kNone;
  const bool has_loss = spec.loss.surrogate != kernels::Surrogate::kNone;
  for (int i = 0; i < request.outputs_size(); ++i) {
    const auto role = static_cast<v1::TensorRole>(request.outputs(i));
    const std::string field = "outputs[" + std::to_string(i) + "]";
    if (IsAmong(result.value, role)) {
      result.violations.push_back({field, "is asked for twice"});
      continue;
    }
    if (FindOutput(role) == nullptr) {
      result.violations.push_back(
          {field,
           "is not an output: WEIGHTS, KEEP_MASK, TOKEN_REASONS, "
           "SEQUENCE_REASONS or GRADIENT"});
    } else if (role == v1::TENSOR_ROLE_WEIGHTS && method.ok() && !has_weights) {
      result.violations.push_back(
          {field,
           "WEIGHTS were asked for, but the method has no importance weight"});
    } else if (role == v1::TENSOR_ROLE_GRADIENT && method.ok() && !has_loss) {
      result.violations.push_back(
          {field,
           "GRADIENT is that of a policy loss, and the method has none; "
           "ListMethods tells which have, such as token_tis_ppo_clip"});
    }
    result.value.push_back(role);
  }
  if (request.outputs_size() == 0) {
    if (has_weights) result.value.push_back(v1::TENSOR_ROLE_WEIGHTS);
    result.value.push_back(v1::TENSOR_ROLE_KEEP_MASK);
    if (has_loss) result.value.push_back(v1::TENSOR_ROLE_GRADIENT);
  }
  return result;
}

}  // namespace

Result<Outputs> ReadOutputs(const v1::CorrectRequest& request,
                            const PayloadSource& source,
                            const Result<Layout>& layout,
                            const Tensors& tensors,
                            const Result<Method>& method) {
  Result<std::vector<v1::TensorRole>> roles = ReadRoles(request, method);
  Result<Outputs> result{{.roles = std::move(roles.value)},
                         std::move(roles.violations)};
  Outputs& outputs = result.value;
  Violations& violations = result.violations;
  std::optional<kernels::DeviceUuid> device = tensors.device;
  for (int i = 0; i < request.destinations_size(); ++i) {
    const v1::Tensor& tensor = request.destinations(i);
    const std::string at = "destinations[" + std::to_string(i) + "]";
    const v1::TensorRole role = tensor.role();
    if (source.is_stream) {
      violations.push_back({at, "is for Correct; a stream sends its outputs"});
      continue;
    }
    const bool may_lack = request.outputs_size() == 0 && DependsOnMethod(role);
    if (!IsAmong(outputs.roles, role) && !may_lack) {
      violations.push_back({at + ".role", "is not among the outputs"});
      continue;
    }
    const OutputKind& kind = KindOf(role);
    if (outputs.destinations.contains(role)) {
      violations.push_back({at + ".role", "was sent twice"});
    } else if (tensor.dtype() != kind.dtype) {
      violations.push_back({at + ".dtype", "must be the output's, " +
                                               v1::DType_Name(kind.dtype)});
    } else if (!tensor.data().empty()) {
      violations.push_back({at + ".data", "must be empty"});
    } else if (layout.ok()) {
      const RangeNeed need{RegionAccess::kWrite,
                           OutputBytes(role, layout.value),
                           ElementSize(kind.dtype)};
      const Result<SharedRange> range =
          FindRange(tensor.shared_memory(), need, source.regions, device,
                    at + ".shared_memory");
      violations.Append(range.violations);
      if (!range.ok()) continue;
      if (range.value.device()) device = range.value.device();
      outputs.regions.push_back(range.value.region);
      std::byte* const data = range.value.data;
      const std::string overlap =
          Overlap(data, need.bytes, layout.value, tensors, outputs);
      if (!overlap.empty()) {
        violations.push_back({at + ".shared_memory", overlap});
      }
      outputs.destinations[role] = {tensor.shared_memory(), data};
    }
  }
  // Destinations of outputs that the method lacks were checked, no more.
  std::erase_if(outputs.destinations, [&](const auto& each) {
    return !IsAmong(outputs.roles, each.first);
  });
  return result;
}

int64_t OutputBytes(v1::TensorRole role, const Layout& layout) {
  const OutputKind& kind = KindOf(role);
  const int64_t count =
      kind.is_per_sequence ? layout.num_sequences : layout.num_positions;
  return count * ElementSize(kind.dtype);
}

v1::DType OutputDType(v1::TensorRole role) { return KindOf(role).dtype; }

void PlaceOutput(v1::TensorRole role, std::byte* data,
                 kernels::Outputs* outputs) {
  KindOf(role).place(data, outputs);
}

int64_t OutputBytes(const Outputs& outputs, const Layout& layout) {
  int64_t bytes = 0;
  for (const v1::TensorRole role : outputs.roles) {
    if (outputs.destinations.contains(role)) continue;
    bytes += Aligned(OutputBytes(role, layout));
  }
  return bytes;
}

kernels::Outputs AllocateOutputs(const Outputs& outputs, const Layout& layout,
                                 const OutputPlace& place,
                                 v1::CorrectResponse* response) {
  kernels::Outputs places;
  places.partial_sums = outputs.partial_sums;
  for (const v1::TensorRole role : outputs.roles) {
    v1::Tensor* const tensor = response->add_tensors();
    tensor->set_role(role);
    tensor->set_dtype(OutputDType(role));
    std::byte* data = nullptr;
    const auto destination = outputs.destinations.find(role);
    if (destination != outputs.destinations.end()) {
      *tensor->mutable_shared_memory() = destination->second.range;
      data = destination->second.data;
    } else {
      data = place(tensor, OutputBytes(role, layout));
    }
    PlaceOutput(role, data, &places);
  }
  return places;
}

std::byte* PlaceInMessage(v1::Tensor* tensor, int64_t bytes) {
  std::string* const data = tensor->mutable_data();
  data->resize(static_cast<size_t>(bytes));
  return reinterpret_cast<std::byte*>(data->data());
}

}  // namespace counterweight::server
