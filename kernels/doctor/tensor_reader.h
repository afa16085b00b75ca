// Elements of a tensor as float32, exactly.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_TENSOR_READER_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_TENSOR_READER_H_

#include <cstdint>

#include "kernels/batch.h"

namespace counterweight::kernels::doctor {

// Writes elements [begin, begin + n) to out. REQUIRES: the tensor was sent.
void Read(const TensorView& tensor, int64_t begin, int64_t n, float* out);

// One element.
float At(const TensorView& tensor, int64_t index);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_TENSOR_READER_H_
