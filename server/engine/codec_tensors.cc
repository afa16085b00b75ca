#include "server/engine/codec_tensors.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

#include "server/engine/codec_memory.h"

namespace counterweight::server {
namespace {

bool IsReal(v1::DType dtype) {
  return dtype == v1::D_TYPE_F32 || dtype == v1::D_TYPE_BF16 ||
         dtype == v1::D_TYPE_F16;
}

kernels::DType ToKernel(v1::DType dtype) {
  if (dtype == v1::D_TYPE_BF16) return kernels::DType::kBF16;
  return dtype == v1::D_TYPE_F16 ? kernels::DType::kF16 : kernels::DType::kF32;
}

// The slot of a role in kernels::Batch::tensors; -1 for roles that no kernel
// reads.
int KernelSlot(v1::TensorRole role) {
  switch (static_cast<int>(role)) {
    case v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS:
      return static_cast<int>(kernels::InputRole::kRollout);
    case v1::TENSOR_ROLE_OLD_LOG_PROBS:
      return static_cast<int>(kernels::InputRole::kOld);
    case v1::TENSOR_ROLE_CURRENT_LOG_PROBS:
      return static_cast<int>(kernels::InputRole::kCurrent);
    case v1::TENSOR_ROLE_ADVANTAGES:
      return static_cast<int>(kernels::InputRole::kAdvantages);
    case v1::TENSOR_ROLE_REF_LOG_PROBS:
      return static_cast<int>(kernels::InputRole::kRef);
    default:
      return -1;
  }
}

v1::TensorRole RoleOf(kernels::InputRole role) {
  switch (role) {
    case kernels::InputRole::kRollout:
      return v1::TENSOR_ROLE_ROLLOUT_LOG_PROBS;
    case kernels::InputRole::kOld:
      return v1::TENSOR_ROLE_OLD_LOG_PROBS;
    case kernels::InputRole::kCurrent:
      return v1::TENSOR_ROLE_CURRENT_LOG_PROBS;
    case kernels::InputRole::kAdvantages:
      return v1::TENSOR_ROLE_ADVANTAGES;
    case kernels::InputRole::kRef:
      return v1::TENSOR_ROLE_REF_LOG_PROBS;
  }
  return v1::TENSOR_ROLE_UNSPECIFIED;
}

// Where the kernels read a role.
void SetInput(v1::TensorRole role, const void* data, kernels::DType dtype,
              kernels::Batch* batch) {
  if (role == v1::TENSOR_ROLE_RESPONSE_MASK) {
    batch->response_mask = static_cast<const uint8_t*>(data);
  } else {
    batch->tensors[KernelSlot(role)] = {data, dtype};
  }
}

class TensorDecoder {
 public:
  TensorDecoder(const LayoutInfo* layout, const PayloadSource& source,
                TensorSet* tensors, DecodedRequest* decoded,
                Violations* violations)
      : layout_(layout),
        source_(source),
        tensors_(tensors),
        decoded_(decoded),
        violations_(violations) {}

  void Decode(const v1::Tensor& tensor, int index) {
    at_ = "tensors[" + std::to_string(index) + "]";
    const v1::TensorRole role = tensor.role();
    if (!CheckRole(role)) return;
    if (tensors_->has(role)) {
      Fail(".role", RoleName(role) + " was sent twice");
      return;
    }
    tensors_->roles |= uint32_t{1} << role;
    if (!CheckDType(tensor) || layout_ == nullptr) return;
    const int64_t element = ElementSize(tensor.dtype());
    const InputTensor input{role, layout_->num_positions * element, element};
    decoded_->inputs.push_back(input);
    const void* data = nullptr;
    if (source_.is_stream) {
      CheckHasNoData(tensor);
    } else if (tensor.has_shared_memory()) {
      const SharedRange range = Share(tensor, input);
      data = range.data;
      decoded_->shared_inputs.emplace_back(range.data,
                                           data == nullptr ? 0 : input.bytes);
      if (role == v1::TENSOR_ROLE_RESPONSE_MASK) {
        decoded_->has_shared_mask = true;
        decoded_->has_device_mask = range.is_on_device;
      }
    } else if (CheckSize(tensor, input.bytes)) {
      data = tensor.data().data();
      if (role == v1::TENSOR_ROLE_RESPONSE_MASK) CheckMask(tensor);
    }
    SetInput(input.role, data, ToKernel(tensor.dtype()), &tensors_->batch);
  }

 private:
  void Fail(const std::string& field, std::string description) {
    violations_->push_back({at_ + field, std::move(description)});
  }

  bool CheckRole(v1::TensorRole role) {
    if (role == v1::TENSOR_ROLE_RESPONSE_MASK || KernelSlot(role) >= 0) {
      return true;
    }
    switch (static_cast<int>(role)) {
      case v1::TENSOR_ROLE_ENTROPIES:
      case v1::TENSOR_ROLE_REWARDS:
      case v1::TENSOR_ROLE_TEACHER_LOG_PROBS:
      case v1::TENSOR_ROLE_POLICY_VERSIONS:
        Fail(".role",
             RoleName(role) + " is not used by this server yet; leave it out");
        return false;
      default:
        Fail(".role",
             "must be the role of an input, such as "
             "ROLLOUT_LOG_PROBS or RESPONSE_MASK");
        return false;
    }
  }

  bool CheckDType(const v1::Tensor& tensor) {
    const bool mask = tensor.role() == v1::TENSOR_ROLE_RESPONSE_MASK;
    if (mask ? tensor.dtype() == v1::D_TYPE_U8 : IsReal(tensor.dtype())) {
      return true;
    }
    Fail(".dtype", RoleName(tensor.role()) +
                       (mask ? " must be U8" : " must be F32, BF16 or F16"));
    return false;
  }

  void CheckHasNoData(const v1::Tensor& tensor) {
    if (!tensor.data().empty()) {
      Fail(".data", "must be empty in a stream's header; chunks carry it");
    }
    if (tensor.has_shared_memory()) {
      Fail(".shared_memory",
           "is for Correct; a stream's chunks carry the bytes");
    }
  }

  SharedRange Share(const v1::Tensor& tensor, const InputTensor& input) {
    if (!tensor.data().empty()) {
      Fail(".data", "must be empty where shared_memory is set");
      return {};
    }
    return FindRange(tensor.shared_memory(),
                     {RegionAccess::kRead, input.bytes, input.element_size},
                     source_.regions, at_ + ".shared_memory", decoded_,
                     violations_);
  }

  bool CheckSize(const v1::Tensor& tensor, int64_t bytes) {
    if (static_cast<int64_t>(tensor.data().size()) == bytes) return true;
    Fail(".data", RoleName(tensor.role()) + " has " +
                      std::to_string(tensor.data().size()) +
                      " bytes; the layout's " +
                      std::to_string(layout_->num_positions) +
                      " positions need " + std::to_string(bytes));
    return false;
  }

  void CheckMask(const v1::Tensor& tensor) {
    const auto* mask = reinterpret_cast<const uint8_t*>(tensor.data().data());
    const int64_t bad = FirstNonBoolean({mask, tensor.data().size()});
    if (bad < 0) return;
    violations_->push_back(NonBoolean(at_ + ".data", bad, mask[bad]));
  }

  const LayoutInfo* layout_;
  const PayloadSource& source_;
  TensorSet* tensors_;
  DecodedRequest* decoded_;
  Violations* violations_;
  std::string at_;
};

}  // namespace

std::string RoleName(v1::TensorRole role) {
  constexpr size_t kPrefix = sizeof("TENSOR_ROLE_") - 1;
  std::string name = v1::TensorRole_Name(role);
  if (name.size() <= kPrefix) return "role " + std::to_string(role);
  name = name.substr(kPrefix);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return name;
}

int64_t ElementSize(v1::DType dtype) {
  switch (static_cast<int>(dtype)) {
    case v1::D_TYPE_F32:
    case v1::D_TYPE_I32:
      return 4;
    case v1::D_TYPE_BF16:
    case v1::D_TYPE_F16:
    case v1::D_TYPE_U16:
      return 2;
    case v1::D_TYPE_U8:
      return 1;
    default:
      return 0;
  }
}

// Eight at a time: masks are as long as the batch.
int64_t FirstNonBoolean(std::span<const uint8_t> mask) {
  constexpr uint64_t kAllowed = 0x0101010101010101u;
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= mask.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, mask.data() + i, sizeof(word));
    if ((word & ~kAllowed) != 0) break;
  }
  for (; i < mask.size(); ++i) {
    if (mask[i] > 1) return static_cast<int64_t>(i);
  }
  return -1;
}

Violation NonBoolean(const std::string& field, int64_t position, int value) {
  return {field, "response_mask must hold 0 and 1 only, but position " +
                     std::to_string(position) + " holds " +
                     std::to_string(value)};
}

void DecodeTensors(const v1::CorrectRequest& request, const LayoutInfo* layout,
                   const PayloadSource& source, TensorSet* tensors,
                   DecodedRequest* decoded, Violations* violations) {
  TensorDecoder decoder(layout, source, tensors, decoded, violations);
  for (int i = 0; i < request.tensors_size(); ++i) {
    decoder.Decode(request.tensors(i), i);
  }
  if (!tensors->has(v1::TENSOR_ROLE_RESPONSE_MASK)) {
    violations->push_back({"tensors[RESPONSE_MASK]",
                           "response_mask is required with every method"});
  }
}

std::vector<StreamTensor> PlaceInputs(std::byte* memory,
                                      DecodedRequest* decoded) {
  std::vector<StreamTensor> tensors;
  for (const InputTensor& input : decoded->inputs) {
    const bool is_mask = input.role == v1::TENSOR_ROLE_RESPONSE_MASK;
    tensors.push_back({memory, input.bytes, input.element_size, is_mask});
    const kernels::DType dtype =
        is_mask ? kernels::DType::kF32
                : decoded->batch.tensors[KernelSlot(input.role)].dtype;
    SetInput(input.role, memory, dtype, &decoded->batch);
    memory += Aligned(input.bytes);
  }
  return tensors;
}

int64_t InputBytes(const DecodedRequest& decoded) {
  int64_t bytes = 0;
  for (const InputTensor& input : decoded.inputs) bytes += Aligned(input.bytes);
  return bytes;
}

Violations TakeMask(const std::byte* copy, DecodedRequest* decoded) {
  const auto size = static_cast<size_t>(decoded->num_positions);
  const auto* mask = reinterpret_cast<const uint8_t*>(copy);
  decoded->batch.response_mask = mask;
  const int64_t bad = FirstNonBoolean({mask, size});
  if (bad < 0) return {};
  size_t index = 0;
  while (decoded->inputs[index].role != v1::TENSOR_ROLE_RESPONSE_MASK) ++index;
  return {NonBoolean("tensors[" + std::to_string(index) + "].data", bad,
                     mask[bad])};
}

void RequireTensors(uint32_t inputs, const TensorSet& tensors,
                    Violations* violations) {
  for (int r = 0; r < kernels::kNumInputRoles; ++r) {
    if ((inputs >> r & 1u) == 0) continue;
    const v1::TensorRole role = RoleOf(static_cast<kernels::InputRole>(r));
    if (tensors.has(role)) continue;
    std::string name = v1::TensorRole_Name(role);
    const std::string field =
        "tensors[" + name.substr(sizeof("TENSOR_ROLE_") - 1) + "]";
    violations->push_back(
        {field, RoleName(role) + " is required by this method"});
  }
}

void WarnOfUnread(uint32_t inputs, const TensorSet& tensors,
                  std::vector<std::string>* warnings) {
  for (int r = 0; r < kernels::kNumInputRoles; ++r) {
    const v1::TensorRole role = RoleOf(static_cast<kernels::InputRole>(r));
    if ((inputs >> r & 1u) != 0 || !tensors.has(role)) continue;
    warnings->push_back(RoleName(role) +
                        " was sent, but this method does not read it");
  }
}

Violation ToViolation(const kernels::NonFinite& non_finite) {
  const v1::TensorRole role = RoleOf(non_finite.role);
  const std::string where = "at sequence " +
                            std::to_string(non_finite.sequence) + ", token " +
                            std::to_string(non_finite.token);
  std::string name = v1::TensorRole_Name(role);
  const std::string field =
      "tensors[" + name.substr(sizeof("TENSOR_ROLE_") - 1) + "]";
  if (non_finite.input) {
    return {field, RoleName(role) + " is NaN or infinite " + where +
                       ", where response_mask is 1; non_finite_policy DROP or "
                       "NEUTRALIZE accepts such tokens"};
  }
  return {field, "the log ratio of " + RoleName(role) + " is infinite " +
                     where + " although its log-probs are finite"};
}

}  // namespace counterweight::server
