// Tinker's named losses, `{"loss_fn": "ppo", "loss_fn_config": {...}}`: the
// formulas of its documentation, as agentscope-ai/TuFT @102eefd4 runs them;
// keys as NovaSky-AI/SkyRL @a9564572 checks them. README.md lists the
// decisions.
//
// - `logprobs` of a datum are rollout_log_probs, the target's are
//   current_log_probs; a datum is the tokens of a row that count.
// - All are of current/rollout, unclamped, and plain sums over all tokens. gspo
//   is SEQUENCE_TOKEN. Thresholds are ratios, not distances from 1.
// - No weights, no mask; the one metric is `loss:sum`.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TINKER_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TINKER_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateTinker(const google::protobuf::Struct& block,
                            bool ignore_unknown_fields,
                            const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TINKER_H_
