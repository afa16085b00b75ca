// verl's policy losses and KL penalty, from verl-project/verl @1dda039b:
// POLICY_LOSS_REGISTRY and kl_penalty of verl/trainer/ppo/core_algos.py,
// ppo_loss of verl/workers/utils/losses.py.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LOSS_H_

#include <cstdint>
#include <string_view>

#include "kernels/loss_spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/verl_layout.h"
#include "server/engine/dialects/verl_loss_metrics.h"

namespace counterweight::server {

// bypass_mode and loss_type of RolloutCorrectionConfig.
enum class VerlMode : uint8_t {
  kDecoupled,      // the correction is of old/rollout, the loss of current/old
  kBypassPpoClip,  // both are of current/rollout; the weights only for metrics
  kBypassReinforce,  // no ratio in the loss, weights of current/rollout
};

struct VerlLoss {
  kernels::LossSpec spec;
  VerlLossMetrics metrics;
  // False for loss_mode reinforce, which calls the loss without the correction
  // around it: nothing is rejected, and the correction has no metrics.
  bool corrects = true;
};

// Reads the loss of `layout`, complete unless there are violations. Unknown
// keys of policy_loss are violations or, if `ignore`, warnings.
VerlLoss ReadVerlLoss(const VerlLayout& layout, VerlMode mode, bool ignore,
                      const RequestFacts& facts, Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LOSS_H_
