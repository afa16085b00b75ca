// OpenRLHF's PolicyLoss and KL loss, from OpenRLHF/OpenRLHF @3c3be623:
// openrlhf/models/loss.py, openrlhf/models/utils.py and
// openrlhf/trainer/ray/ppo_actor.py; reinforce_pro from richardodliu/OpenRLHF
// @01a0f25e. README.md lists the quirks and decisions.
//
// - Losses. ppo clamps the log ratio at 20. gspo is unclamped, by samples, and
//   of current/rollout if correction is enabled.
// - Correction: a weight TOKEN of old/rollout, unclamped. `tis` is TRUNCATE,
//   `icepop` MASK; `seq-mask-tis` and `reinforce_pro` are a rule MEAN,
//   PREFIX_MEAN RATIO with the effect ZERO_WEIGHT, and leave the weight
//   unbounded. Since 0.11.2 `clip` and `mask` by token and ratio are TRUNCATE
//   and MASK, all else such a rule of RATIO, BINARY_KL or TOTAL_VARIATION; a
//   threshold `[high]` is `[0, high]`.
// - Denominators. `token_level_loss`: tokens, or `batch_num_tokens` /
//   `dp_size`; else nonempty rows by tokens of the row, or `global_batch_size`
//   / `dp_size`.
// - KL penalty: clamped at 10 after the formula, on response_mask, always by
//   tokens. With `unbiased_gradient` its gradient is `min(exp(current - old),
//   10)` times K2's.
// - `is_filter_ratio` is the share of tokens, or of all rows, that are outside
//   (an empty row is).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_H_

#include "google/protobuf/struct.pb.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// See Dialect::translate.
Translation TranslateOpenrlhf(const google::protobuf::Struct& block,
                              bool ignore_unknown_fields,
                              const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_H_
