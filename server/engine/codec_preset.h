// Named methods in kernel types. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_PRESET_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_PRESET_H_

#include "counterweight/v1/method.pb.h"
#include "server/engine/codec.h"
#include "server/engine/codec_method.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Fills decoded's spec, rule_names and method_name. A name of a preset or of a
// parameter that does not exist is a violation that tells the nearest one.
void DecodePreset(const v1::Preset& preset, const LossFacts& facts,
                  DecodedRequest* decoded, Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_PRESET_H_
