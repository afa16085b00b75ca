// ClippedPGLossFn's configuration, from NVIDIA-NeMo/RL @7ea279ab:
// nemo_rl/algorithms/loss/loss_functions.py. README.md lists the quirks and
// decisions.
//
// - Correction: old/rollout, or current/rollout with force_on_policy_ratio; of
//   tokens, or of the row's product with sequence_level_importance_ratios. tis
//   is TRUNCATE. icepop and seq-mask-tis are a rule ZERO_WEIGHT and a rule DROP
//   of one statistic: rejected tokens have the weight 0 and leave the mask.
// - Losses: PPO with dual clip, by SEQUENCE with
//   sequence_level_importance_ratios; CISPO; REINFORCE with disable_ppo_ratio;
//   the unclipped ratio to itself with force_on_policy_ratio.
// - The KL penalty is k u, u the ratio of the current policy to itself or, with
//   use_on_policy_kl_approximation, to the rollout's: its gradient has the
//   score function's term.
// - Denominators are of response_mask, or `global_valid_toks` and
//   `global_valid_seqs`.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateNemoRl(const google::protobuf::Struct& block,
                            bool ignore_unknown_fields,
                            const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_H_
