// ROLL's policy losses, of ActorWorker and ActorPGWorker (pg_variant).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_LOSS_H_

#include <cstdint>

#include "kernels/loss_spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

// kWorker: pg_variant is absent.
enum class RollVariant : uint8_t {
  kVanilla,
  kPpo,
  kTis,
  kCispo,
  kKimi15,
  kWorker
};

enum class RollAggregation : uint8_t {
  kSeqMeanTokenMean,
  kSeqMeanTokenSum,
  kSeqMeanTokenSumNorm,
  kTokenMean
};

struct RollLoss {
  RollVariant variant = RollVariant::kWorker;
  RollAggregation aggregation = RollAggregation::kSeqMeanTokenMean;
  double coefficient = 1.0;  // rl_loss_coef
  kernels::LossSpec spec;
};

// Reads the loss's fields. If the request wants the loss, its tensors are
// required, and *translation gets it.
RollLoss ReadRollLoss(const BlockReader& reader, const RequestFacts& facts,
                      Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_LOSS_H_
