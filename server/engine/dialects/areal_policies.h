// The log-probs that AReaL compares, by the block and the tensors.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_POLICIES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_POLICIES_H_

#include <string_view>

#include "kernels/batch.h"
#include "kernels/loss_spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

struct ArealPolicies {
  // use_decoupled_loss; without it the proximal policy is the behaviour policy.
  bool is_decoupled = false;
  // The current log-probs, detached, are the proximal ones.
  bool reuses_current = false;
  // recompute_logprob: the old log-probs are those of the behaviour policy.
  bool recomputes = false;

  // Current to proximal policy.
  kernels::RatioSource Loss() const {
    if (is_decoupled) {
      return reuses_current ? kernels::RatioSource::kCurrentSelf
                            : kernels::RatioSource::kCurrentOld;
    }
    return recomputes ? kernels::RatioSource::kCurrentOld
                      : kernels::RatioSource::kCurrentRollout;
  }
  // Proximal to behaviour policy, or a pair that is read where they are one.
  kernels::RatioSource Correction() const {
    if (!is_decoupled) return Loss();
    return reuses_current ? kernels::RatioSource::kCurrentRollout
                          : kernels::RatioSource::kOldRollout;
  }
  kernels::InputRole Behaviour() const {
    return !is_decoupled && recomputes ? kernels::InputRole::kOld
                                       : kernels::InputRole::kRollout;
  }
  kernels::InputRole Proximal() const {
    if (!is_decoupled) return Behaviour();
    return reuses_current ? kernels::InputRole::kCurrent
                          : kernels::InputRole::kOld;
  }
};

ArealPolicies ReadArealPolicies(const BlockReader& reader,
                                Translation* translation);

// Requires the log-probs that `source` compares, with the clause `reason`.
void RequirePair(kernels::RatioSource source, const RequestFacts& facts,
                 std::string_view reason, Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_POLICIES_H_
