// Which tensors a request wants back, and where. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
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

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_OUTPUTS_H_
