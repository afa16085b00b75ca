// The policy loss of ClippedPGLossFn: surrogate, reduction and KL penalty.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_LOSS_H_

#include <optional>

#include "kernels/loss_spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

struct NemoRlLoss {
  bool by_token = true;       // token_level_loss
  bool by_sequence = false;   // sequence_level_importance_ratios
  bool is_reinforce = false;  // disable_ppo_ratio, and not the next
  bool is_on_policy = false;  // force_on_policy_ratio
  // reference_policy_kl_type, which metrics have without a penalty too.
  kernels::KlEstimator kl_type = kernels::KlEstimator::kK3;
  // global_valid_toks, global_valid_seqs.
  std::optional<double> tokens;
  std::optional<double> sequences;
  kernels::LossSpec spec;

  // The ratio of weights, rejection and drift: the current log-probs stand for
  // the old ones on policy.
  kernels::RatioSource Correction() const {
    return is_on_policy ? kernels::RatioSource::kCurrentRollout
                        : kernels::RatioSource::kOldRollout;
  }
};

// NeMo RL adds this to a given or counted denominator.
inline constexpr double kNemoRlEpsilon = 1e-8;

// Reads the loss's fields. If the request wants the loss, its tensors are
// required, and *translation gets it.
NemoRlLoss ReadNemoRlLoss(const BlockReader& reader, const RequestFacts& facts,
                          Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_LOSS_H_
