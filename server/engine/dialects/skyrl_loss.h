// policy_loss_type and use_kl_loss: the policy losses of SkyRL's ppo_utils.py.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_LOSS_H_

#include <span>
#include <string_view>

#include "kernels/loss_spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/skyrl_correction.h"

namespace counterweight::server {

// The structs with a loss's fields.
struct SkyrlLossBlock {
  const BlockReader& shared;  // the whole block
  const BlockReader& own;     // the struct named as the loss; it may be empty
  const SkyrlCorrection& correction;
  const RequestFacts& facts;
  Translation* translation;
};

// A row of the table of policy losses.
struct SkyrlLoss {
  std::string_view name;  // "dual_clip"
  kernels::Surrogate surrogate;
  // The log ratio is clamped at 20 on both sides.
  bool is_clamped;
  // True if the loss applies off_policy_correction.
  bool takes_correction;
  // Keys of the struct that is named as the loss.
  std::span<const std::string_view> fields;
  // Reads the loss's own fields; null: it has none.
  void (*read)(const SkyrlLossBlock& block, kernels::LossSpec* loss);
};

// Refuses a field that SkyRL has since kSkyrlCispoAnchor for an older release,
// even if unknown ones are ignored: it is known and has an effect.
void RefuseNewSkyrlField(const BlockReader& reader, std::string_view field,
                         const RequestFacts& facts);

// Returns null and a violation for an unknown policy_loss_type.
const SkyrlLoss* ReadSkyrlLossType(const BlockReader& reader);

// Reads the fields of `loss`, its reduction and the KL penalty. If the request
// wants a loss, its tensors are required and *translation gets the loss;
// otherwise only invalid fields are reported.
void ReadSkyrlLoss(const BlockReader& reader, const SkyrlLoss& loss,
                   const SkyrlCorrection& correction,
                   bool ignore_unknown_fields, const RequestFacts& facts,
                   Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_LOSS_H_
