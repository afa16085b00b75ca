// A backend's description in proto. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SERVER_INFO_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SERVER_INFO_H_

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/corrector.h"
#include "server/engine/codec_layout.h"

namespace counterweight::server {

// Fills in the fields that follow from the backend and the engine: numbers,
// devices, dialects, the limits of a request, the features of every server. The
// caller adds its version, the limits of messages and the features of its
// transport.
void EncodeServerInfo(const kernels::BackendInfo& backend,
                      const RequestLimits& limits,
                      v1::GetServerInfoResponse* message);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SERVER_INFO_H_
