// The versions that sampled a row.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_ROW_VERSIONS_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_ROW_VERSIONS_H_

#include "kernels/batch.h"
#include "kernels/doctor/sample.h"

namespace counterweight::kernels::doctor {

// True if the trained version sampled each of the row's tokens; false if one is
// of another version or of an unknown one. False too for a row that was sampled
// across an update: its last tokens saw a cache of older weights.
bool IsFresh(const Batch& batch, const Sample& sample, const SampledRow& row);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_ROW_VERSIONS_H_
