// verl's RolloutCorrectionConfig and its algorithm, from verl-project/verl
// @1dda039b: verl/trainer/config/algorithm.py and
// compute_rollout_correction_and_rejection_mask of
// verl/trainer/ppo/rollout_corr_helper.py. server/engine/dialects/README.md
// lists the coverage and decisions.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateVerl(const google::protobuf::Struct& block,
                          bool ignore_unknown_fields,
                          const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_H_
