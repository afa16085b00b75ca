// Which tensors a request wants back, and where. Part of the codec.
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

// Shared memory that an output is written to.
struct OutputDestination {
  v1::SharedMemoryRange range;
  std::byte* data = nullptr;
};

struct Outputs {
  // Roles to return, in order.
  std::vector<v1::TensorRole> roles;
  // By role; those that are not here are sent.
  std::map<v1::TensorRole, OutputDestination> destinations;
  // Keeps what destinations point to.
  std::vector<std::shared_ptr<const Region>> regions;
};

// Outputs that the method does not have are refused where it is valid, and
// destinations are looked for where the layout is.
Result<Outputs> ReadOutputs(const v1::CorrectRequest& request,
                            const PayloadSource& source,
                            const Result<Layout>& layout,
                            const Tensors& tensors,
                            const Result<Method>& method);

// Bytes that the outputs which are sent take, each aligned to 64.
int64_t OutputBytes(const Outputs& outputs, const Layout& layout);

// Gives memory to an output that is sent; aligned to its elements.
using OutputPlace =
    std::function<std::byte*(v1::Tensor* tensor, int64_t bytes)>;

// Adds the response's tensors and returns where their numbers go: to their
// destination, else to where `place` says.
kernels::Outputs AllocateOutputs(const Outputs& outputs, const Layout& layout,
                                 const OutputPlace& place,
                                 v1::CorrectResponse* response);

// An OutputPlace inside the tensor itself.
std::byte* PlaceInMessage(v1::Tensor* tensor, int64_t bytes);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_
