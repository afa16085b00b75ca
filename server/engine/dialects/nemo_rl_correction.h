// use_importance_sampling_correction and truncated_importance_sampling_*.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_CORRECTION_H_

#include <cstdint>

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

enum class NemoRlTruncation : uint8_t { kTis, kIcepop, kSeqMaskTis, kNone };

struct NemoRlCorrection {
  bool weighs = false;
  bool by_sequence = false;  // sequence_level_importance_ratios
  NemoRlTruncation truncation = NemoRlTruncation::kNone;
  // Bounds of the ratio.
  double low = 0.0;
  double high = kernels::kUnbounded;

  // Rejected tokens have the weight 0.
  bool Rejects() const {
    return truncation == NemoRlTruncation::kIcepop ||
           truncation == NemoRlTruncation::kSeqMaskTis;
  }
};

// Settings that NeMo RL refuses are violations.
NemoRlCorrection ReadNemoRlCorrection(const BlockReader& reader,
                                      std::vector<std::string>* warnings);

// Adds the weight, of `source`, and the rules. Without a correction the weights
// are 1; a request that lacks what they compare, unless `has_compared`, has
// none.
void ApplyNemoRlCorrection(const NemoRlCorrection& correction,
                           kernels::RatioSource source, bool has_compared,
                           Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_NEMO_RL_CORRECTION_H_
