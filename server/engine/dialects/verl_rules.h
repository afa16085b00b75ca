// verl's rollout_rs and rollout_rs_threshold as rejection rules.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_RULES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_RULES_H_

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

// Adds rules and their names to *translation in the order of the options, or
// violations; nothing if rollout_rs is absent or null. Like verl, it makes the
// options unique before it counts thresholds. `reader` reads a
// RolloutCorrectionConfig, `source` is the options' ratio.
void ReadVerlRules(const BlockReader& reader, kernels::RatioSource source,
                   Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_RULES_H_
