// Decodes requested outputs and their destinations. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/batch.h"
#include "server/engine/codec_layout.h"
#include "server/engine/codec_method.h"
#include "server/engine/codec_tensors.h"
#include "server/engine/region.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Shared memory for an output.
struct OutputDestination {
  v1::SharedMemoryRange range;
  std::byte* data = nullptr;
};

struct Outputs {
  // Roles to return, in order.
  std::vector<v1::TensorRole> roles;
  // By role; other outputs are sent.
  std::map<v1::TensorRole, OutputDestination> destinations;
  // kernels::Outputs::partial_sums.
  bool partial_sums = false;
  // Keeps the destinations' memory.
  std::vector<std::shared_ptr<const Region>> regions;
};

// Refuses outputs that a valid method lacks; finds destinations if the layout
// is valid.
Result<Outputs> ReadOutputs(const v1::CorrectRequest& request,
                            const PayloadSource& source,
                            const Result<Layout>& layout,
                            const Tensors& tensors,
                            const Result<Method>& method);

// An output of that role in a batch of that layout.
int64_t OutputBytes(v1::TensorRole role, const Layout& layout);
v1::DType OutputDType(v1::TensorRole role);
// Has the kernels write the output to `data`.
void PlaceOutput(v1::TensorRole role, std::byte* data,
                 kernels::Outputs* outputs);

// Bytes of the sent outputs, each aligned to 64.
int64_t OutputBytes(const Outputs& outputs, const Layout& layout);

// Allocates memory of a sent output, aligned to its elements.
using OutputPlace =
    std::function<std::byte*(v1::Tensor* tensor, int64_t bytes)>;

// Adds the response's tensors and returns the addresses of their numbers: the
// destination, else the result of `place`.
kernels::Outputs AllocateOutputs(const Outputs& outputs, const Layout& layout,
                                 const OutputPlace& place,
                                 v1::CorrectResponse* response);

// An OutputPlace inside the tensor itself.
std::byte* PlaceInMessage(v1::Tensor* tensor, int64_t bytes);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_
