// Methods of a DiagnoseRequest that are described, not applied. Part of the
// codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SHADOW_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SHADOW_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/corrector.h"
#include "server/engine/codec.h"
#include "server/engine/result.h"

namespace counterweight::server {

inline constexpr int kMaxShadows = 4;

// A valid method with the batch. Its views point into itself and into the
// DiagnoseRequest; so it is not moved.
struct ShadowedMethod {
  v1::CorrectRequest message;  // without the bytes of tensors
  Decoded decoded;
};
using ShadowedMethods = std::vector<std::unique_ptr<ShadowedMethod>>;

// `tensors` are the request's, which is valid but for its shadows.
Result<ShadowedMethods> ReadShadows(const v1::CorrectRequest& request,
                                    const RequestLimits& limits,
                                    const Tensors& tensors);

// Bytes of the methods, and of what DescribeShadows allocates.
int64_t ShadowBytes(const ShadowedMethods& methods);

// Adds a Shadow for each method until `stop` returns true. response_mask: as
// it is to be read. On the caller's thread; the same bits on every backend.
void DescribeShadows(const ShadowedMethods& methods,
                     const uint8_t* response_mask,
                     const kernels::StopRequest& stop,
                     v1::DiagnoseResponse* response);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SHADOW_H_
