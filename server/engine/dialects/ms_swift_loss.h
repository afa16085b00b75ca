// ms-swift's policy loss: surrogate, reduction and KL penalty.
//
// dapo and cispo divide by num_items_in_batch and multiply by
// gradient_accumulation_steps, which undoes the Trainer's division. Under
// megatron bnpo does so too, all three by num_items_in_batch / dp_size, at
// least 1, and multiply by num_microbatches instead.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_LOSS_H_

#include <cstdint>

#include "kernels/loss_spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

enum class MsSwiftLossType : uint8_t {
  kGrpo,
  kBnpo,
  kDrGrpo,
  kDapo,
  kCispo,
  kSapo
};

struct MsSwiftLoss {
  MsSwiftLossType type = MsSwiftLossType::kGrpo;
  bool is_megatron = false;
  kernels::LossSpec spec;
};

// Reads the loss's fields. If the request wants the loss, its tensors are
// required, and *translation gets it. `weighs`: the tokens have weights.
MsSwiftLoss ReadMsSwiftLoss(const BlockReader& reader,
                            const RequestFacts& facts, bool weighs,
                            Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_LOSS_H_
