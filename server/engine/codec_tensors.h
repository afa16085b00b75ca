// Tensors between proto and kernel types. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_TENSORS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_TENSORS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/tensor.pb.h"
#include "kernels/batch.h"
#include "server/engine/codec.h"
#include "server/engine/codec_layout.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// The tensors of a request: views for the kernels, and which roles were sent.
struct TensorSet {
  kernels::Batch batch;
  uint32_t roles = 0;  // bit v1::TensorRole

  bool has(v1::TensorRole role) const { return (roles >> role & 1u) != 0; }
};

// Fills *tensors and decoded's inputs, regions and has_shared_mask. `layout`
// may be null: sizes are then not checked.
void DecodeTensors(const v1::CorrectRequest& request, const LayoutInfo* layout,
                   const PayloadSource& source, TensorSet* tensors,
                   DecodedRequest* decoded, Violations* violations);

// Lower-case name of a role, as in the Python client: "rollout_log_probs".
std::string RoleName(v1::TensorRole role);

// Bytes of an element; 0 for unknown types.
int64_t ElementSize(v1::DType dtype);

// Index of the first byte above 1, or -1.
int64_t FirstNonBoolean(std::span<const uint8_t> mask);

// That response_mask holds `value` at `position`.
Violation NonBoolean(const std::string& field, int64_t position, int value);

// A violation for each tensor that `inputs` (bits kernels::InputRole) names and
// the request lacks.
void RequireTensors(uint32_t inputs, const TensorSet& tensors,
                    Violations* violations);

// A sentence for each tensor that was sent and that `inputs` does not name: it
// is not read, so not even a NaN in it is noticed.
void WarnOfUnread(uint32_t inputs, const TensorSet& tensors,
                  std::vector<std::string>* warnings);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_TENSORS_H_
