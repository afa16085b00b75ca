// The policy loss of slime's and miles' loss.py and ppo_utils.py: surrogate,
// OPSM, reduction and KL penalty.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_LOSS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/slime_correction.h"
#include "server/engine/dialects/slime_policies.h"

namespace counterweight::server {

// How token quantities become one number, in losses and metrics.
struct SlimeReduction {
  // calculate_per_token_loss: divides by tokens; an empty row counts as one.
  bool by_token = false;
  // step_global_batch_size; absent: the batch's rows.
  std::optional<int64_t> rollouts;
  // rollout_mask_sums, [num_sequences], at least 1: rows are divided by these;
  // empty: by their own tokens.
  std::vector<double> divisors;
};

struct SlimeLoss {
  SlimeReduction reduction;
  bool is_cispo = false;
  bool is_gspo = false;
  bool has_opsm = false;
  bool has_kl = false;
};

// Reads the loss's fields; if the request wants a loss, its tensors are
// required and *translation gets it, with OPSM's rule after the correction's.
SlimeLoss ReadSlimeLoss(const BlockReader& reader, const SlimeSystem& system,
                        const SlimePolicies& policies,
                        const SlimeCorrection& correction,
                        const RequestFacts& facts, Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_LOSS_H_
