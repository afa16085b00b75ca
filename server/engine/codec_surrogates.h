// The surrogates of the wire as rows of one table. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_

#include <cstdint>
#include <span>

#include "counterweight/v1/method.pb.h"
#include "kernels/loss_spec.h"

namespace counterweight::server {

// Groups of PolicyLoss's numbers; a surrogate reads some of them.
enum FieldGroup : uint32_t {
  kClip = 1u << 0,
  kDualClip = 1u << 1,
  kRatioCap = 1u << 2,
  kLogRatioClamp = 1u << 3,
  kTau = 1u << 4,
  kShape = 1u << 5,
  kBeta = 1u << 6,
  kFraction = 1u << 7,
  kBounds = 1u << 8,
  kKlWeight = 1u << 9,
};

// What a Surrogate of the wire is in the kernels.
struct SurrogateRow {
  v1::Surrogate wire;
  kernels::Surrogate surrogate;
  kernels::LossLevel level;
  uint32_t fields;  // FieldGroup
};

std::span<const SurrogateRow> SurrogateRows();

// Null if there is none.
const SurrogateRow* FindSurrogate(v1::Surrogate wire);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_SURROGATES_H_
