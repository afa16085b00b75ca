// AReaL's policy losses.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_LOSS_H_

#include <cstdint>

#include "kernels/loss_spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/areal_policies.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

enum class ArealLossType : uint8_t { kPpo, kSapo, kCispo };

struct ArealLoss {
  ArealLossType type = ArealLossType::kPpo;
  kernels::LossSpec spec;

  // A row's mean advantage is the advantage of its tokens.
  bool by_sequence() const {
    return spec.level == kernels::LossLevel::kSequence;
  }
};

// Reads the loss's fields. If the request wants the loss, its tensors are
// required, and *translation gets it.
ArealLoss ReadArealLoss(const BlockReader& reader,
                        const ArealPolicies& policies,
                        const RequestFacts& facts, Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_LOSS_H_
