// TRL's GRPOConfig and its trainer, from huggingface/trl @f2cd5771:
// trl/trainer/grpo_config.py and trl/trainer/grpo_trainer.py.
// server/engine/dialects/README.md lists the quirks and decisions.
//
// B is the number of rows, T the padded width, g gradient_accumulation_steps.
// - Weights are of old/rollout, without clamps, if neither `use_vllm` nor
//   `vllm_importance_sampling_correction` is false and `rollout_log_probs` are
//   there. Without `old_log_probs` the policy's own serve, detached: the loss's
//   ratio is 1 and has a gradient, and weights are of current/rollout.
// - `off_policy_mask_threshold: d`: DROP rows with a MEAN RATIO of
// current/rollout, else of current/old, below `-d` where A < 0.
// - Losses. `delta` caps PPO's unclipped branch; cispo has no lower end, and
//   `epsilon_high` is the cap itself; vespo's phi includes the weights.
// - Denominators: grpo and sapo: mean over rows of the token mean, / g. bnpo:
//   token mean, / g. dr_grpo: sum / (B `max_completion_length` g). dapo, cispo
//   and vespo: sum `num_processes` / `num_items_in_batch`; without that, / this
//   batch's tokens. luspo: mean over rows of loss times tokens, / g.
// - KL penalty: k3 of every token, with `use_bias_correction_kl` times the
//   ratio.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateTrl(const google::protobuf::Struct& block,
                         bool ignore_unknown_fields, const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_H_
