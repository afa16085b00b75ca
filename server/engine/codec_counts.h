// Decodes CorrectRequest.global_counts and row_divisors. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_COUNTS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_COUNTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/counts_use.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Counts of the step that the request states; a batch has at most as much.
struct StatedCounts {
  std::optional<int64_t> tokens, sequences, kept_tokens, kept_sequences;
  // `sequences` counts empty ones too.
  bool counts_empty_sequences = false;
};

// The uses of a preset or a config with its policy_loss below `prefix`
// ("method.preset.").
CountsUse CountsUseOf(const v1::PolicyLoss& loss, const std::string& prefix);

// Replaces the spec's own counts by those of the request. Violations name what
// is out of range, missing or not read.
Result<StatedCounts> ApplyCounts(const v1::CorrectRequest& request,
                                 const CountsUse& use,
                                 kernels::CorrectionSpec* spec);

// Makes the loss divide by CorrectRequest.row_divisors, and returns them:
// [num_sequences], or empty if there are none.
Result<std::vector<double>> ApplyRowDivisors(const v1::CorrectRequest& request,
                                             const CountsUse& use,
                                             int64_t num_sequences,
                                             kernels::CorrectionSpec* spec);

// A count of the step below the batch's own is a violation.
Violations CheckStated(const StatedCounts& stated,
                       const kernels::BatchSums& sums);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_COUNTS_H_
