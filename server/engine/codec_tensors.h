// Tensors between proto and kernel types. Part of the codec.
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
#include "server/engine/codec_layout.h"
#include "server/engine/region.h"
#include "server/engine/result.h"

namespace counterweight::server {

// How a request's tensors come.
struct PayloadSource {
  // In chunks, later: the tensors carry no data. PlaceInputs gives them memory.
  bool is_stream = false;
  // Where ranges of shared memory are found; null: there is none.
  const Regions* regions = nullptr;
  // Asked between steps; false ends the decoding early. Empty: always wanted.
  std::function<bool()> is_wanted;
};

// One tensor of a request, in its order.
struct InputTensor {
  v1::TensorRole role = v1::TENSOR_ROLE_UNSPECIFIED;
  int64_t bytes = 0;
  int64_t element_size = 1;
};

// Where the numbers of a request lie.
struct Tensors {
  kernels::TensorView views[kernels::kNumInputRoles];
  const uint8_t* response_mask = nullptr;
  uint32_t roles = 0;  // bit v1::TensorRole: it was sent
  std::vector<InputTensor> inputs;
  // Keeps what views point to.
  std::vector<std::shared_ptr<const Region>> regions;
  // Ranges of them that are read.
  std::vector<std::span<const std::byte>> shared_inputs;
  // Where regions on a device are; none if there are none.
  std::optional<kernels::DeviceUuid> device;
  // response_mask lies in shared memory, unchecked; see CheckMask.
  bool has_shared_mask = false;
  // It lies there on a device.
  bool has_device_mask = false;

  bool has(v1::TensorRole role) const { return (roles >> role & 1u) != 0; }
};

// Sizes are checked where the layout is valid.
Result<Tensors> ReadTensors(const v1::CorrectRequest& request,
                            const Result<Layout>& layout,
                            const PayloadSource& source);

// Bytes that a stream's inputs take, each aligned to 64.
int64_t InputBytes(const Tensors& tensors);

// What is wrong with a copy of a shared mask that lies on the host. The mask
// itself may be changed by its client at any time.
Violations CheckMask(const std::byte* copy, const Tensors& tensors);

// The violation that a refused non-finite number is.
Violation ToViolation(const kernels::NonFinite& non_finite);

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
Violations RequireTensors(uint32_t inputs, const Tensors& tensors);

// A sentence for each tensor that was sent and that `inputs` does not name: it
// is not read, so not even a NaN in it is noticed.
std::vector<std::string> WarnOfUnread(uint32_t inputs, const Tensors& tensors);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_TENSORS_H_
