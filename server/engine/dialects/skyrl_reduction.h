// loss_reduction: apply_loss_reduction_to_advantages_minibatch of SkyRL's
// ppo_utils.py.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_REDUCTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_REDUCTION_H_

#include "kernels/loss_spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

// Reads loss_reduction and its parameters into *loss, and the groups of prompts
// or micro-batches into *translation. Groups are arguments of SkyRL's call:
// they are read only if the request wants a loss.
void ReadSkyrlReduction(const BlockReader& reader, const RequestFacts& facts,
                        kernels::LossSpec* loss, Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_REDUCTION_H_
