// The log-probs that slime and miles compare, by the block and the tensors.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_POLICIES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_POLICIES_H_

#include <string>
#include <string_view>
#include <vector>

#include "kernels/loss_spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

// slime, or miles, where they differ.
struct SlimeSystem {
  std::string_view name;  // "slime"
  bool is_miles;
  std::string_view icepop;  // the path of its icepop_function
  std::string_view mis;     // the path of its compute_mis_weights_with_cp
};

struct SlimePolicies {
  // The current log-probs, detached, are the old ones.
  bool current_is_old = false;
  // use_rollout_logprobs: the rollout's log-probs are the old ones of the
  // policy's ratio.
  bool rollout_is_old = false;

  // The ratio of the policy loss.
  kernels::RatioSource Loss() const {
    return rollout_is_old   ? kernels::RatioSource::kCurrentRollout
           : current_is_old ? kernels::RatioSource::kCurrentSelf
                            : kernels::RatioSource::kCurrentOld;
  }
  // The ratio of weights, rejection and mismatch metrics.
  kernels::RatioSource Correction() const {
    return current_is_old ? kernels::RatioSource::kCurrentRollout
                          : kernels::RatioSource::kOldRollout;
  }
};

// Old log-probs that are absent, and not needed by a loss, are a violation of
// miles' and a warning of slime's.
SlimePolicies ReadSlimePolicies(const BlockReader& reader,
                                const SlimeSystem& system,
                                const RequestFacts& facts,
                                Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_POLICIES_H_
