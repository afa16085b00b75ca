#include "server/engine/dialects/areal_policies.h"

#include <string_view>

#include "server/engine/dialects/request_tensors.h"

namespace counterweight::server {

using kernels::RatioSource;

ArealPolicies ReadArealPolicies(const BlockReader& reader,
                                Translation* translation) {
  constexpr std::string_view kMethod = "prox_logp_method";
  constexpr std::string_view kVersion = "current_version";
  // The last two are refused.
  constexpr std::string_view kMethods[] = {"recompute", "reuse_train_logp",
                                           "loglinear", "metrics"};
  ArealPolicies policies;
  policies.is_decoupled = reader.ReadBool("use_decoupled_loss", false);
  policies.recomputes = reader.ReadBool("recompute_logprob", false);
  const size_t method =
      reader.ReadName(kMethod, kMethods[0], kMethods).value_or(0);
  policies.reuses_current = policies.is_decoupled && method == 1;
  if (!policies.is_decoupled && method != 0) {
    translation->warnings.push_back(Concat(
        reader.Path(kMethod), " does nothing without use_decoupled_loss."));
  } else if (method > 1) {
    reader.Violate(
        kMethod,
        Concat(kMethod, " '", kMethods[method],
               "' is not computed: it makes proximal log-probs from the "
               "staleness of tokens. Send them as old_log_probs with "
               "'recompute'."));
  }
  if (!reader.IsNull(kVersion)) {
    translation->warnings.push_back(
        Concat(reader.Path(kVersion),
               " does nothing here: only prox_logp_method 'loglinear' reads "
               "it."));
  }
  return policies;
}

void RequirePair(RatioSource source, const RequestFacts& facts,
                 std::string_view reason, Violations* violations) {
  const bool of_old =
      source == RatioSource::kOldRollout || source == RatioSource::kCurrentOld;
  const bool of_rollout = source == RatioSource::kOldRollout ||
                          source == RatioSource::kCurrentRollout;
  RequireTensor(facts.has_old_log_probs || !of_old, "old_log_probs", reason,
                violations);
  RequireTensor(facts.has_rollout_log_probs || !of_rollout, "rollout_log_probs",
                reason, violations);
  RequireTensor(
      facts.has_current_log_probs || source == RatioSource::kOldRollout,
      "current_log_probs", reason, violations);
}

}  // namespace counterweight::server
