// Decodes named methods. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_PRESET_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_PRESET_H_

#include "counterweight/v1/method.pb.h"
#include "server/engine/codec_method.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Decodes a preset without kernels::Validate. An unknown name of a preset or
// parameter is a violation that names the nearest one.
Result<Method> ReadPreset(const v1::Preset& preset, const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_PRESET_H_
