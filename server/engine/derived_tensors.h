// Tensors that a method makes from those of the request, before the correction.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DERIVED_TENSORS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DERIVED_TENSORS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "kernels/spec.h"
#include "kernels/turn_means.h"

namespace counterweight::server {

// The tensor `role` is minuend - subtrahend at each token.
struct TensorDifference {
  kernels::InputRole role;
  kernels::InputRole minuend;
  kernels::InputRole subtrahend;
};

// Which tensors are derived. The correction reads them for those of their roles
// that were sent; each is made from the tensors as they were sent.
struct DerivedTensors {
  std::vector<TensorDifference> differences;

  bool empty() const { return differences.empty(); }
};

// Bits of InputRole: those that are made, and those that they are made from.
uint32_t RolesOf(const DerivedTensors& derived);
uint32_t SourcesOf(const DerivedTensors& derived);

// Bytes of host memory that they take for so many positions, without the
// buffers of a row.
int64_t DerivedBytes(const DerivedTensors& derived, int64_t positions);

// A batch with derived tensors.
struct DerivedBatch {
  kernels::Batch batch;
  // The memory of the tensors, [num_positions] each.
  std::vector<std::unique_ptr<float[]>> memory;
  kernels::TurnMeans turn_means;
  // The first token, by sequence and position, with a derived number that is
  // not finite. `role` is that of a source that is not finite there, or, with
  // `input` false, the minuend of finite ones.
  std::optional<kernels::NonFinite> non_finite;
};

// Makes the tensors, and the means over turns that the spec reads. A difference
// is the float32 of a float64 one, 0 where
// batch.response_mask is 0. A number that is not finite, or a difference beyond
// float32, gives one that is not finite, which the correction's policy sees as
// the token's own. `stop`, which may be empty, is called between sequences;
// nothing is returned if it is true once. REQUIRES: mask and sources are there,
// in host memory.
std::optional<DerivedBatch> DeriveTensors(const DerivedTensors& derived,
                                          const kernels::CorrectionSpec& spec,
                                          const kernels::Batch& batch,
                                          const kernels::StopRequest& stop);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DERIVED_TENSORS_H_
