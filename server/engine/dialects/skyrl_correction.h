// off_policy_correction: compute_off_policy_correction of SkyRL's
// off_policy_correction_utils.py.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_CORRECTION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

inline constexpr std::string_view kSkyrlCorrection = "off_policy_correction";

// exp(20) and exp(-20) in float32: the ends of SkyRL's clamped ratios.
inline constexpr double kSkyrlLargestRatio = 485165184.0;
inline constexpr double kSkyrlLeastRatio = 2.06115369216775e-09;

// Ratios, low <= high; 0 and infinity mean an absent end.
struct SkyrlInterval {
  double low = 0.0;
  double high = kernels::kUnbounded;
};

struct SkyrlCorrection {
  // kToken, kSequence, or kNone for no TIS.
  kernels::Level tis = kernels::Level::kNone;
  double tis_cap = 0.0;  // ratio, > 0
  std::string tis_path;  // of the field that selects TIS
  std::optional<SkyrlInterval> outlier;
  std::optional<SkyrlInterval> token_mask;
  // kMean (geometric) or kSum (product).
  kernels::Aggregation sequence_metric = kernels::Aggregation::kMean;
  std::optional<SkyrlInterval> sequence_mask;

  // The condition of SkyRL's own validation.
  bool HasTisOrSequenceMask() const {
    return tis != kernels::Level::kNone || sequence_mask.has_value();
  }
  bool IsEnabled() const {
    return HasTisOrSequenceMask() || outlier || token_mask;
  }
};

// Reads the block's struct off_policy_correction and the deprecated use_tis.
// Settings that SkyRL accepts and computes wrong are violations.
SkyrlCorrection ReadSkyrlCorrection(const BlockReader& reader,
                                    bool ignore_unknown_fields,
                                    Translation* translation);

// Returns "outlier_seq", "token_mask", "geo_sequence_mask" or
// "product_sequence_mask": SkyRL's metric name of the rule with this
// aggregation.
std::string_view SkyrlRuleName(kernels::Aggregation aggregation);

// Adds rules and weight in SkyRL's order. REQUIRES: old and rollout log-probs
// are there.
void ApplySkyrlCorrection(const SkyrlCorrection& correction,
                          Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_SKYRL_CORRECTION_H_
