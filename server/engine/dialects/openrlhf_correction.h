// OpenRLHF's correction of rollout by old log-probs, in the fields of both
// generations: enable_vllm_is_correction and vllm_is_* up to 0.11.1 (from
// @3c3be623 and, for reinforce_pro, richardodliu/OpenRLHF @01a0f25e),
// is_correction_{level, mode, gating, threshold} since 0.11.2.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_CORRECTION_H_

#include <span>
#include <string>
#include <string_view>

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

// The fields of a release, and fields that only the other generation has.
std::span<const std::string_view> OpenrlhfCorrectionFields(
    const RequestFacts& facts);
std::span<const std::string_view> OpenrlhfFieldsOfOthers(
    const RequestFacts& facts);

// A token's or a row's statistic, and its effect outside [low, high].
struct OpenrlhfCorrection {
  // GSPO's ratio is then current / rollout, and nothing else is corrected.
  bool is_on = false;
  std::string_view name;  // of the rule
  kernels::Estimator estimator = kernels::Estimator::kRatio;
  kernels::Aggregation aggregation = kernels::Aggregation::kToken;
  // True if the weight becomes the nearest end instead of 0.
  bool clips = false;
  double low = 0.5;
  double high = 5.0;
  // The field that enables it, for messages.
  std::string_view field;

  bool by_row() const { return aggregation == kernels::Aggregation::kMean; }
};

// Reads everything but the threshold of the old fields, which only a loss with
// a correction reads.
OpenrlhfCorrection ReadOpenrlhfCorrection(const BlockReader& reader,
                                          const RequestFacts& facts);
void ReadOpenrlhfThreshold(const BlockReader& reader, const RequestFacts& facts,
                           OpenrlhfCorrection* correction);

// Adds the weight and the rule. Neither weights nor ratios are clamped.
void ApplyOpenrlhfCorrection(const OpenrlhfCorrection& correction,
                             Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_CORRECTION_H_
