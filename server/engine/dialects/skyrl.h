// SkyRL's AlgorithmConfig and its algorithm, from NovaSky-AI/SkyRL @a9564572
// (0.4.0): skyrl/train/config/config.py,
// skyrl/backends/skyrl_train/utils/off_policy_correction_utils.py and
// ppo_utils.py. README.md lists the coverage and decisions.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateSkyrl(const google::protobuf::Struct& block,
                           bool ignore_unknown_fields,
                           const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_H_
