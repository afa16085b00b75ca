// Decodes a loss's reduction, and the caller's counts over all ranks. Part of
// the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_

#include <cstdint>
#include <span>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/method.pb.h"
#include "kernels/spec.h"
#include "server/engine/codec_facts.h"
#include "server/engine/result.h"

namespace counterweight::server {

// The count over all ranks that a GLOBAL denominator divides by.
enum class GlobalCount : uint8_t { kNone, kTokens, kSequences };

struct ReductionCounts {
  kernels::BatchCount batch;
  kernels::RowCount row;
};

// The kernels' form of a LossAggregation by denominator; GLOBAL divides rows
// like ORIGINAL.
struct AggregationRow {
  v1::LossAggregation wire;
  ReductionCounts original;
  ReductionCounts kept;
  GlobalCount global;
  bool has_norm_length = false;
};

std::span<const AggregationRow> AggregationRows();

// Decodes aggregation, denominator and norm_length. Violations have field paths
// below `prefix`, or of global_counts.
kernels::LossReduction DecodeReduction(const v1::PolicyLoss& loss,
                                       const MethodFacts& facts,
                                       const std::string& prefix,
                                       Violations* violations);

// Returns the mean that normalizes the ranks' weights, or 0 for the batch's
// own. Checks all of global_counts.
Result<double> ReadGivenMean(const v1::CorrectRequest& request,
                             const kernels::WeightSpec& weight);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_
