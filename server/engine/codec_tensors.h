// Decodes tensors. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_TENSORS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/tensor.pb.h"
#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "kernels/staleness.h"
#include "server/engine/codec_layout.h"
#include "server/engine/region.h"
#include "server/engine/result.h"

namespace counterweight::server {

// The source of a request's tensors.
struct PayloadSource {
  // True if the data arrives later in chunks; PlaceInputs gives it memory.
  bool is_stream = false;
  // The bytes of each tensor in the request's order if they lie in this process
  // and the tensors carry no data; null: the tensors carry it.
  const std::vector<std::span<const std::byte>>* memory = nullptr;
  // True if that memory is a device's; the device checks the mask.
  bool is_on_device = false;
  // Finds ranges of shared memory; null: there are none.
  const Regions* regions = nullptr;
  // Called between steps; false ends the decoding early. Empty: always wanted.
  std::function<bool()> is_wanted;
};

// One tensor of a request, in its order.
struct InputTensor {
  v1::TensorRole role = v1::TENSOR_ROLE_UNSPECIFIED;
  int64_t bytes = 0;
  int64_t element_size = 1;
};

// Addresses of a request's numbers.
struct Tensors {
  kernels::TensorView views[kernels::kNumInputRoles];
  const uint8_t* response_mask = nullptr;
  const void* policy_versions = nullptr;
  uint32_t roles = 0;  // bit v1::TensorRole: it was sent
  std::vector<InputTensor> inputs;
  // Keeps the views' memory.
  std::vector<std::shared_ptr<const Region>> regions;
  // Ranges of these regions that are read.
  std::vector<std::span<const std::byte>> shared_inputs;
  // The device of device regions, if any.
  std::optional<kernels::DeviceUuid> device;
  // The inputs that lie there. The device checks a mask.
  kernels::DeviceInputs on_device;
  // True if response_mask lies in the host's shared memory, unchecked; see
  // CheckMask.
  bool has_shared_mask = false;

  bool has(v1::TensorRole role) const { return (roles >> role & 1u) != 0; }
};

// Checks sizes if the layout is valid.
Result<Tensors> ReadTensors(const v1::CorrectRequest& request,
                            const Result<Layout>& layout,
                            const PayloadSource& source);

// Bytes of a stream's inputs, each aligned to 64.
int64_t InputBytes(const Tensors& tensors);

// Checks a host copy of a shared mask; the client may change the mask itself at
// any time.
Violations CheckMask(const std::byte* copy, const Tensors& tensors);

// Converts what a device found in a mask to a violation.
Violation ToViolation(const kernels::BadMask& bad, const Tensors& tensors);

// Converts a refused non-finite number to a violation.
Violation ToViolation(const kernels::NonFinite& non_finite);

// Lower-case name of a role, as in the Python client: "rollout_log_probs".
std::string RoleName(v1::TensorRole role);

// Bytes of an element; 0 for unknown types.
int64_t ElementSize(v1::DType dtype);

// Index of the first byte above 1, or -1.
int64_t FirstNonBoolean(std::span<const uint8_t> mask);

// Reports that response_mask holds `value` at `position`.
Violation NonBoolean(const std::string& field, int64_t position, int value);

// A violation for each tensor that `inputs` (bits kernels::InputRole) names and
// the request lacks.
Violations RequireTensors(uint32_t inputs, const Tensors& tensors);

// Returns a sentence for each sent tensor that `inputs` does not name: it is
// not read, so a NaN in it is not noticed.
std::vector<std::string> WarnOfUnread(uint32_t inputs, const Tensors& tensors);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_TENSORS_H_
