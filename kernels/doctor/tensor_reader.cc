#include "kernels/doctor/tensor_reader.h"

#include <cstring>

#include "kernels/math/bits.h"

namespace counterweight::kernels::doctor {

void Read(const TensorView& tensor, int64_t begin, int64_t n, float* out) {
  if (n == 0) return;  // `out` may be null, which memcpy never takes
  const auto* const bytes = static_cast<const uint8_t*>(tensor.data);
  if (tensor.dtype == DType::kF32) {
    std::memcpy(out, bytes + begin * 4, static_cast<size_t>(n) * 4);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    uint16_t half;
    std::memcpy(&half, bytes + (begin + i) * 2, sizeof(half));
    out[i] = tensor.dtype == DType::kBF16 ? from_bf16(half) : from_f16(half);
  }
}

float At(const TensorView& tensor, int64_t index) {
  float value;
  Read(tensor, index, 1, &value);
  return value;
}

}  // namespace counterweight::kernels::doctor
