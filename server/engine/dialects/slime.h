// slime's arguments and the block of its MIS example, from THUDM/slime
// @624b824a: slime/backends/megatron_utils/loss.py, slime/utils/ppo_utils.py,
// examples/train_infer_mismatch_helper/mis.py; and miles, a system of its own
// with other numbers for some blocks, from radixark/miles @31f1ca961:
// miles/backends/training_utils/loss.py and loss_hub/. README.md lists the
// quirks and decisions.
//
// - Correction: old/rollout, or current/rollout where the current log-probs are
//   the old ones. TIS is TRUNCATE, IcePop MASK, both unclamped. MIS clamps the
//   level's log ratio at 20; `mask` is a rule of the weight's level, `use_rs` a
//   rule of `rs_level`, the veto a rule ALL, all DROP.
// - Losses: PPO with dual clip, gspo by SEQUENCE over response_mask, cispo.
//   miles clamps the log ratio at 20.
// - OPSM is a rule MEAN of the policy's ratio with the effect ZERO_WEIGHT on
//   weights of 1.
// - Denominators are of response_mask, or `rollout_mask_sums` and
//   `step_global_batch_size`; the KL penalty is on kept tokens.
// - Metrics are token quantities averaged like the loss: by sums
//   (slime_metrics.h), the others by a pass over the tokens, of batches in host
//   memory alone (slime_token_metrics.h).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateSlime(const google::protobuf::Struct& block,
                           bool ignore_unknown_fields,
                           const RequestFacts& facts);
Translation TranslateMiles(const google::protobuf::Struct& block,
                           bool ignore_unknown_fields,
                           const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_H_
