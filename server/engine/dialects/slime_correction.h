// use_tis, custom_tis_function_path and get_mismatch_metrics: TIS, IcePop and
// MIS of slime's and miles' loss.py and mis.py.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_CORRECTION_H_

#include <cstdint>
#include <optional>

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/slime_policies.h"

namespace counterweight::server {

// kTis is without a custom function.
enum class SlimeFunction : uint8_t { kTis, kIcepop, kMis };
enum class SlimeTisMode : uint8_t { kTruncate, kClip, kMask };

// Ratios, low <= high.
struct SlimeInterval {
  double low = 0.0;
  double high = kernels::kUnbounded;
};

struct SlimeCorrection {
  SlimeFunction function = SlimeFunction::kTis;
  bool weighs = false;    // use_tis
  bool measures = false;  // metrics of the function, with or without weights
  // TIS, IcePop: tis_clip_low and tis_clip. MIS: the bounds of its weights.
  SlimeInterval bounds;
  // MIS alone.
  SlimeTisMode mode = SlimeTisMode::kTruncate;
  kernels::Level level = kernels::Level::kToken;
  bool normalizes = false;
  kernels::Level rs_level = kernels::Level::kToken;
  std::optional<SlimeInterval> rs;
  std::optional<double> veto;  // ratio

  bool MasksByWeight() const {
    return function == SlimeFunction::kMis && weighs &&
           mode == SlimeTisMode::kMask;
  }
  bool Drops() const { return MasksByWeight() || rs; }
};

// Settings that the system refuses, or computes to no purpose, are violations.
SlimeCorrection ReadSlimeCorrection(const BlockReader& reader,
                                    const SlimeSystem& system,
                                    Translation* translation);

// Adds rules, in the order mask, rejection, veto, and the weight.
void ApplySlimeCorrection(const SlimeCorrection& correction,
                          const SlimePolicies& policies,
                          const RequestFacts& facts, Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SLIME_CORRECTION_H_
