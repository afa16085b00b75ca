// SkyRL's AlgorithmConfig and its algorithm, from NovaSky-AI/SkyRL @a9564572
// (0.4.0): skyrl/train/config/config.py,
// skyrl/backends/skyrl_train/utils/off_policy_correction_utils.py and
// ppo_utils.py. README.md lists the quirks and decisions.
//
// - Correction, in SkyRL's order: outlier tokens (ALL), the token mask (both
//   thresholds must be set), weights (by sequence on what these two left), the
//   sequence mask (geometric: MEAN, product: SUM). All are of old/rollout,
//   clamped at 20.
// - Losses clamp the log ratio at 20, gspo bounds it at 10; clip_cov, kl_cov
//   and importance_sampling do neither. rollout_is, dppo and `cispo_anchor:
//   rollout` are of current/rollout; dppo without rollout log-probs is of
//   current/old.
// - Denominators are always of response_mask. `prompt_mean` groups by
//   `prompt_boundaries` or the request's `group_ids`, `token_mean_legacy` by
//   full micro-batches.
// - KL penalty: on response_mask, rows by tokens; K3 has the clamps 20 and 10.
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
