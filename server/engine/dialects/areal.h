// PPOActorConfig, from areal-project/AReaL @cbff54d6:
// areal/trainer/ppo/actor.py and areal/utils/functional. README.md lists the
// quirks and decisions.
//
// - Behaviour policy b and proximal policy p: rollout and old with
//   use_decoupled_loss, rollout and current with prox_logp_method
//   reuse_train_logp; else both are rollout, or old with recompute_logprob.
// - rejection_sampling: the weight is p/b, of tokens or a row's geometric mean.
//   action mask is one statistic as a rule ZERO_WEIGHT and a rule DROP, action
//   clamp TRUNCATE.
// - Losses: PPO with dual clip, of current/p; SAPO of current/b; CISPO. The
//   weight is a factor of the loss.
// - Denominators are tokens of response_mask.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateAreal(const google::protobuf::Struct& block,
                           bool ignore_unknown_fields,
                           const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_H_
