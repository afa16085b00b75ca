// verl's RolloutCorrectionConfig and its algorithm, from verl-project/verl
// @1dda039b: verl/trainer/config/algorithm.py and
// compute_rollout_correction_and_rejection_mask of
// verl/trainer/ppo/rollout_corr_helper.py. server/engine/dialects/README.md
// lists the quirks and decisions.
//
// - Correction. `rollout_is: token` is a weight TOKEN with the token clamp 20,
//   `sequence` a weight SEQUENCE with the aggregate clamp 20.
//   `rollout_is_threshold` `u` is TRUNCATE above, `"l_u"` MASK, null no
//   weights, with a warning. `*_k1` options are RATIO in the log interval
//   `[-log hi, -log lo]`, `*_k2` and `*_k3` have an upper bound only, all with
//   the token clamp 20.
// - Bypass. `bypass_mode: true` uses current/rollout; `loss_type: ppo_clip` has
//   the weights only for metrics, `reinforce` multiplies by them.
// - Losses. vanilla, dppo, sapo and cispo clamp the log ratio at 20, gspo
//   bounds it at 10; gpg is REINFORCE. `loss_mode` also takes `bypass_mode` and
//   `reinforce` (that loss without rejection), where `bypass_mode` is true.
// - Denominators count what the rules kept, or are `global_batch_info` times
//   `dp_size`; gspo and sapo always take `seq-mean-token-mean`.
// - KL penalty: over kept tokens, in bypass over all; `low_var_kl` has the
//   clamps 20 and 10, `+` is straight through.
// - verl's own tree is accepted; only the correction and the actor are read. A
//   `preset` replaces the whole block.
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
