// rollout_importance_sampling_* and off_policy_sequence_mask_delta.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_CORRECTION_H_

#include <cstdint>
#include <optional>

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

enum class MsSwiftMode : uint8_t {
  kTokenTruncate,
  kTokenMask,
  kSequenceTruncate,
  kSequenceMask,
  kNone
};

struct MsSwiftCorrection {
  // kNone without rollout log-probs too.
  MsSwiftMode mode = MsSwiftMode::kNone;
  double threshold = 2.0;
  // rollout_correction/* are answered.
  bool measures = false;
  std::optional<double> opsm_delta;

  bool weighs() const { return mode != MsSwiftMode::kNone; }
};

MsSwiftCorrection ReadMsSwiftCorrection(const BlockReader& reader,
                                        const RequestFacts& facts,
                                        Translation* translation);

// Adds the weight and its rule, then OPSM's. `source`: of the weight.
void ApplyMsSwiftCorrection(const MsSwiftCorrection& correction,
                            kernels::RatioSource source,
                            const RequestFacts& facts,
                            Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_MS_SWIFT_CORRECTION_H_
