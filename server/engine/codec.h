// Between proto and kernel types: the only place where both are known.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/batch.h"
#include "kernels/corrector.h"
#include "kernels/spec.h"
#include "server/engine/dialects/dialect.h"
#include "server/engine/region.h"
#include "server/engine/stream_batch.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Largest request that is computed; all inclusive.
struct RequestLimits {
  int64_t max_tokens = int64_t{64} << 20;
  int64_t max_sequences = int64_t{1} << 20;
};

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

// Shared memory that an output is written to.
struct OutputDestination {
  v1::SharedMemoryRange range;
  std::byte* data = nullptr;
};

// A valid request in kernel types. Views point into the CorrectRequest that it
// was decoded from, which must outlive it, or into `regions`.
struct DecodedRequest {
  kernels::CorrectionSpec spec;
  kernels::Batch batch;
  std::vector<int64_t> offsets;  // owned: Batch::offsets
  std::vector<int32_t> groups;   // owned: Batch::groups
  std::vector<InputTensor> inputs;
  // Keeps what views and destinations point to.
  std::vector<std::shared_ptr<const Region>> regions;
  // Ranges of them that are read.
  std::vector<std::span<const std::byte>> shared_inputs;
  // Where regions on a device are; none if there are none.
  std::optional<kernels::DeviceUuid> device;
  // response_mask lies in shared memory, unchecked; see TakeMask.
  bool has_shared_mask = false;
  // It lies there on a device.
  bool has_device_mask = false;
  // Roles to return, in order.
  std::vector<v1::TensorRole> outputs;
  // By role; those that are not here are sent.
  std::map<v1::TensorRole, OutputDestination> destinations;
  std::vector<std::string> rule_names;
  std::vector<std::string> warnings;
  // Makes the answer's metrics; may find violations. See Translation::report.
  std::function<void(const kernels::BatchSums&, MetricMap*, Violations*)>
      report;
  // The answer has neither metrics nor rules.
  bool omits_metrics = false;
  // The method needs its sums all the same, to know whether it can answer.
  bool report_judges = false;
  // "token_tis", "config", "verl": for the log line.
  std::string method_name;
  int64_t num_positions = 0;
  // The answer's loss is NaN where there is nothing to average.
  bool empty_loss_is_nan = false;
  // Groups are those of CorrectRequest.group_ids.
  bool uses_group_ids = false;
};

// All violations at once, or an empty list and a complete *decoded, but for a
// stream's inputs and a shared mask. If source.is_wanted says no, what is
// returned and *decoded mean nothing.
Violations Decode(const v1::CorrectRequest& request,
                  const RequestLimits& limits, const PayloadSource& source,
                  DecodedRequest* decoded);

// Bytes that PlaceInputs and outputs that are sent take, each aligned to 64.
int64_t InputBytes(const DecodedRequest& decoded);
int64_t OutputBytes(const DecodedRequest& decoded);

// Gives a stream's inputs their places in `memory`, InputBytes() bytes aligned
// to 64, one behind the other.
std::vector<StreamTensor> PlaceInputs(std::byte* memory,
                                      DecodedRequest* decoded);

// Takes a copy of a shared mask, num_positions bytes on the host, and checks
// the copy: its client may change the mask at any time. REQUIRES:
// decoded->has_shared_mask; `copy` outlives *decoded.
Violations TakeMask(const std::byte* copy, DecodedRequest* decoded);

// Gives memory to an output that is sent; aligned to its elements.
using OutputPlace =
    std::function<std::byte*(v1::Tensor* tensor, int64_t bytes)>;

// Adds the response's tensors and returns where their numbers go: to their
// destination, else to where `place` says.
kernels::Outputs AllocateOutputs(const DecodedRequest& decoded,
                                 const OutputPlace& place,
                                 v1::CorrectResponse* response);

// An OutputPlace inside the tensor itself.
std::byte* PlaceInMessage(v1::Tensor* tensor, int64_t bytes);

// Writes what is not a tensor. Returns violations that `report` found; the
// response is then not to be sent.
Violations Encode(const DecodedRequest& decoded, const kernels::BatchSums& sums,
                  v1::CorrectResponse* response);

// The violation that a refused non-finite number is.
Violation ToViolation(const kernels::NonFinite& non_finite);

// The methods table as ListMethods answers it.
void EncodeMethods(v1::ListMethodsResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_H_
