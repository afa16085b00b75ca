#include "server/engine/dialects/slime_policies.h"

#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {

SlimePolicies ReadSlimePolicies(const BlockReader& reader,
                                const SlimeSystem& system,
                                const RequestFacts& facts,
                                Translation* translation) {
  SlimePolicies policies;
  policies.rollout_is_old = reader.ReadBool("use_rollout_logprobs", false);
  policies.current_is_old =
      system.is_miles && reader.ReadBool("skip_actor_forward_only", false);
  if (facts.has_old_log_probs || policies.current_is_old) return policies;
  if (!system.is_miles && facts.has_current_log_probs) {
    policies.current_is_old = true;
    if (!policies.rollout_is_old) {
      translation->warnings.emplace_back(
          "There are no old_log_probs: slime takes the current ones for them, "
          "so that the policy's ratio is 1 and weights compare "
          "current_log_probs with rollout_log_probs.");
    }
  } else if (!policies.rollout_is_old || !facts.wants_loss) {
    RequireTensor(false, "old_log_probs",
                  system.is_miles
                      ? "only skip_actor_forward_only, or for the loss "
                        "use_rollout_logprobs, does without it"
                      : "rollout_log_probs or current_log_probs are compared "
                        "with it",
                  &translation->violations);
  }
  return policies;
}

}  // namespace counterweight::server
