#include "server/engine/codec_tensors.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "server/engine/codec_enums.h"
#include "server/engine/codec_memory.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

struct TypeSize {
  v1::DType dtype;
  int64_t bytes;
};

constexpr TypeSize kTypeSizes[] = {
    {v1::D_TYPE_F32, 4}, {v1::D_TYPE_BF16, 2}, {v1::D_TYPE_F16, 2},
    {v1::D_TYPE_U8, 1},  {v1::D_TYPE_U16, 2},  {v1::D_TYPE_I32, 4},
};
static_assert(std::size(kTypeSizes) + 1 == v1::DType_ARRAYSIZE);

// Inputs of the contract that no method reads.
constexpr v1::TensorRole kUnusedRoles[] = {v1::TENSOR_ROLE_ENTROPIES,
                                           v1::TENSOR_ROLE_REWARDS,
                                           v1::TENSOR_ROLE_TEACHER_LOG_PROBS};

// The violations' name of an input.
std::string FieldOf(kernels::InputRole role) {
  return Concat("tensors[", NameOf(kInputRoles, role), "]");
}

class TensorReader {
 public:
  TensorReader(const Result<Layout>& layout, const PayloadSource& source,
               Result<Tensors>* result)
      : layout_(layout),
        source_(source),
        tensors_(result->value),
        violations_(result->violations) {}

  void Read(const v1::Tensor& tensor, int index) {
    at_ = "tensors[" + std::to_string(index) + "]";
    const v1::TensorRole role = tensor.role();
    if (!CheckRole(role)) return;
    if (tensors_.has(role)) {
      Fail(".role", RoleName(role) + " was sent twice");
      return;
    }
    tensors_.roles |= uint32_t{1} << role;
    if (!CheckDType(tensor) || !layout_.ok()) return;
    const int64_t element = ElementSize(tensor.dtype());
    const InputTensor input{role, layout_.value.num_positions * element,
                            element};
    tensors_.inputs.push_back(input);
    if (source_.memory != nullptr && !CheckIsInMemory(tensor, index)) return;
    const void* data = nullptr;
    if (source_.is_stream) {
      CheckHasNoData(tensor);
    } else if (tensor.has_shared_memory()) {
      const SharedRange range = Share(tensor, input);
      data = range.data;
      tensors_.shared_inputs.emplace_back(range.data,
                                          data == nullptr ? 0 : input.bytes);
      NoteShared(role, range.device().has_value());
    } else {
      const std::span<const std::byte> bytes = BytesOf(tensor, index);
      if (CheckSize(tensor, bytes, input.bytes)) {
        data = bytes.data();
        if (source_.is_on_device) {
          NoteDevice(role);
        } else if (role == v1::TENSOR_ROLE_RESPONSE_MASK) {
          CheckMask(bytes);
        }
      }
    }
    if (role == v1::TENSOR_ROLE_RESPONSE_MASK) {
      tensors_.response_mask = static_cast<const uint8_t*>(data);
    } else if (role == v1::TENSOR_ROLE_POLICY_VERSIONS) {
      tensors_.policy_versions = data;
    } else if (const auto slot = FromWire(kInputRoles, role)) {
      tensors_.views[static_cast<int>(*slot)] = {
          data,
          FromWire(kInputTypes, tensor.dtype()).value_or(kernels::DType())};
    }
  }

 private:
  void Fail(const std::string& field, std::string description) {
    violations_.push_back({at_ + field, std::move(description)});
  }

  // Notes where a tensor in shared memory lies.
  void NoteShared(v1::TensorRole role, bool is_on_device) {
    if (is_on_device) {
      NoteDevice(role);
    } else if (role == v1::TENSOR_ROLE_RESPONSE_MASK) {
      tensors_.has_shared_mask = true;
    }
  }

  void NoteDevice(v1::TensorRole role) {
    if (role == v1::TENSOR_ROLE_RESPONSE_MASK) {
      tensors_.on_device.mask = true;
    } else if (role == v1::TENSOR_ROLE_POLICY_VERSIONS) {
      tensors_.on_device.versions = true;
    } else if (const auto slot = FromWire(kInputRoles, role)) {
      tensors_.on_device.roles |= uint32_t{1} << static_cast<int>(*slot);
    }
  }

  bool CheckRole(v1::TensorRole role) {
    if (role == v1::TENSOR_ROLE_RESPONSE_MASK ||
        role == v1::TENSOR_ROLE_POLICY_VERSIONS ||
        FromWire(kInputRoles, role)) {
      return true;
    }
    const bool is_unused =
        std::find(std::begin(kUnusedRoles), std::end(kUnusedRoles), role) !=
        std::end(kUnusedRoles);
    Fail(".role",
         is_unused
             ? RoleName(role) + " is not used by this server yet; leave it out"
             : "must be the role of an input, such as "
               "ROLLOUT_LOG_PROBS or RESPONSE_MASK");
    return false;
  }

  bool CheckDType(const v1::Tensor& tensor) {
    const v1::DType dtype = tensor.dtype();
    const char* wanted = nullptr;
    if (tensor.role() == v1::TENSOR_ROLE_RESPONSE_MASK) {
      if (dtype != v1::D_TYPE_U8) wanted = "U8";
    } else if (tensor.role() == v1::TENSOR_ROLE_POLICY_VERSIONS) {
      if (dtype != v1::D_TYPE_I32) wanted = "I32";
    } else if (!FromWire(kInputTypes, dtype)) {
      wanted = "F32, BF16 or F16";
    }
    if (wanted == nullptr) return true;
    Fail(".dtype", Concat(RoleName(tensor.role()), " must be ", wanted));
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

  bool CheckIsInMemory(const v1::Tensor& tensor, int index) {
    const size_t at = static_cast<size_t>(index);
    if (!tensor.data().empty() || tensor.has_shared_memory()) {
      Fail(tensor.has_shared_memory() ? ".shared_memory" : ".data",
           "must be absent where the tensor's bytes are given by address");
      return false;
    }
    if (at < source_.memory->size()) return true;
    Fail("", RoleName(tensor.role()) + " was given no bytes by address");
    return false;
  }

  std::span<const std::byte> BytesOf(const v1::Tensor& tensor, int index) {
    if (source_.memory == nullptr) {
      return std::as_bytes(std::span(tensor.data()));
    }
    return (*source_.memory)[static_cast<size_t>(index)];
  }

  SharedRange Share(const v1::Tensor& tensor, const InputTensor& input) {
    if (!tensor.data().empty()) {
      Fail(".data", "must be empty where shared_memory is set");
      return {};
    }
    Result<SharedRange> range =
        FindRange(tensor.shared_memory(),
                  {RegionAccess::kRead, input.bytes, input.element_size},
                  source_.regions, tensors_.device, at_ + ".shared_memory");
    violations_.Append(range.violations);
    if (!range.ok()) return {};
    if (range.value.device()) tensors_.device = range.value.device();
    tensors_.regions.push_back(range.value.region);
    return std::move(range.value);
  }

  bool CheckSize(const v1::Tensor& tensor, std::span<const std::byte> data,
                 int64_t bytes) {
    if (static_cast<int64_t>(data.size()) == bytes) return true;
    Fail(".data", RoleName(tensor.role()) + " has " +
                      std::to_string(data.size()) + " bytes; the layout's " +
                      std::to_string(layout_.value.num_positions) +
                      " positions need " + std::to_string(bytes));
    return false;
  }

  void CheckMask(std::span<const std::byte> data) {
    const auto* mask = reinterpret_cast<const uint8_t*>(data.data());
    const int64_t bad = FirstNonBoolean({mask, data.size()});
    if (bad < 0) return;
    violations_.push_back(NonBoolean(at_ + ".data", bad, mask[bad]));
  }

  const Result<Layout>& layout_;
  const PayloadSource& source_;
  Tensors& tensors_;
  Violations& violations_;
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
  for (const TypeSize& type : kTypeSizes) {
    if (type.dtype == dtype) return type.bytes;
  }
  return 0;
}

// Tests blocks, and then eight bytes, at a time: masks are as long as the
// batch.
int64_t FirstNonBoolean(std::span<const uint8_t> mask) {
  constexpr size_t kBlock = 1024;
  constexpr uint64_t kAllowed = 0x0101010101010101u;
  size_t i = 0;
  for (; i + kBlock <= mask.size(); i += kBlock) {
    uint8_t all = 0;
    for (size_t k = 0; k < kBlock; ++k) all |= mask[i + k];
    if (all > 1) break;
  }
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

Result<Tensors> ReadTensors(const v1::CorrectRequest& request,
                            const Result<Layout>& layout,
                            const PayloadSource& source) {
  Result<Tensors> result;
  TensorReader reader(layout, source, &result);
  for (int i = 0; i < request.tensors_size(); ++i) {
    reader.Read(request.tensors(i), i);
  }
  if (!result.value.has(v1::TENSOR_ROLE_RESPONSE_MASK)) {
    result.violations.push_back(
        {"tensors[RESPONSE_MASK]",
         "response_mask is required with every method"});
  }
  return result;
}

int64_t InputBytes(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const InputTensor& input : tensors.inputs) bytes += Aligned(input.bytes);
  return bytes;
}

Violations CheckMask(const std::byte* copy, const Tensors& tensors) {
  const auto* mask = reinterpret_cast<const uint8_t*>(copy);
  for (size_t i = 0; i < tensors.inputs.size(); ++i) {
    const InputTensor& input = tensors.inputs[i];
    if (input.role != v1::TENSOR_ROLE_RESPONSE_MASK) continue;
    const int64_t bad =
        FirstNonBoolean({mask, static_cast<size_t>(input.bytes)});
    if (bad < 0) continue;
    return {
        NonBoolean("tensors[" + std::to_string(i) + "].data", bad, mask[bad])};
  }
  return {};
}

Violation ToViolation(const kernels::BadMask& bad, const Tensors& tensors) {
  size_t index = 0;
  while (tensors.inputs[index].role != v1::TENSOR_ROLE_RESPONSE_MASK) ++index;
  return NonBoolean(Concat("tensors[", index, "].data"), bad.position,
                    bad.value);
}

Violations RequireTensors(uint32_t inputs, const Tensors& tensors) {
  Violations violations;
  for (int r = 0; r < kernels::kNumInputRoles; ++r) {
    if ((inputs >> r & 1u) == 0) continue;
    const auto input = static_cast<kernels::InputRole>(r);
    const v1::TensorRole role = ToWire(kInputRoles, input);
    if (tensors.has(role)) continue;
    violations.push_back(
        {FieldOf(input), RoleName(role) + " is required by this method"});
  }
  return violations;
}

std::vector<std::string> WarnOfUnread(uint32_t inputs, const Tensors& tensors) {
  std::vector<std::string> warnings;
  for (int r = 0; r < kernels::kNumInputRoles; ++r) {
    const auto input = static_cast<kernels::InputRole>(r);
    const v1::TensorRole role = ToWire(kInputRoles, input);
    if ((inputs >> r & 1u) != 0 || !tensors.has(role)) continue;
    warnings.push_back(RoleName(role) +
                       " was sent, but this method does not read it");
  }
  return warnings;
}

Violation ToViolation(const kernels::NonFinite& non_finite) {
  const v1::TensorRole role = ToWire(kInputRoles, non_finite.role);
  const std::string where = "at sequence " +
                            std::to_string(non_finite.sequence) + ", token " +
                            std::to_string(non_finite.token);
  const std::string field = FieldOf(non_finite.role);
  if (non_finite.input) {
    return {field, RoleName(role) + " is NaN or infinite " + where +
                       ", where response_mask is 1; non_finite_policy DROP or "
                       "NEUTRALIZE accepts such tokens"};
  }
  return {field, "the log ratio of " + RoleName(role) + " is infinite " +
                     where + " although its log-probs are finite"};
}

}  // namespace counterweight::server
