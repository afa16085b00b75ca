// Named methods in kernel types. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_PRESET_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_PRESET_H_

#include "counterweight/v1/method.pb.h"
#include "server/engine/codec_method.h"
#include "server/engine/result.h"

namespace counterweight::server {

// A name of a preset or of a parameter that does not exist is a violation that
// tells the nearest one. kernels::Validate has not seen the spec.
Result<Method> ReadPreset(const v1::Preset& preset, const MethodFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_PRESET_H_
