// GRPO's arguments of ms-swift 4.6.0: swift/rlhf_trainers/grpo_trainer.py and
// swift/megatron/trainers/grpo_trainer.py. README.md lists the quirks and
// decisions.
//
// - Correction: old/rollout, clamped at 20. token_truncate, token_mask and
//   sequence_truncate are weights with an upper bound; sequence_mask is a rule
//   MEAN with the effect ZERO_WEIGHT on weights of tokens. "sequence" is the
//   geometric mean.
// - Losses: PPO with `delta` as cap of the ratio, CISPO, SAPO; the KL penalty
//   has the weight too.
// - OPSM is a rule MEAN of current/rollout for negative advantages; it alone
//   shrinks denominators.
// - `backend` "megatron" divides otherwise (ms_swift_loss.h).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateMsSwift(const google::protobuf::Struct& block,
                             bool ignore_unknown_fields,
                             const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_H_
