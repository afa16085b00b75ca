// How a loss of the wire is added up, and the counts that a caller knows of all
// ranks. Part of the codec.
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

// Which number of all ranks a denominator of GLOBAL divides by.
enum class GlobalCount : uint8_t { kNone, kTokens, kSequences };

struct ReductionCounts {
  kernels::BatchCount batch;
  kernels::RowCount row;
};

// What a LossAggregation of the wire is in the kernels, by its denominator; one
// of GLOBAL divides rows as ORIGINAL does.
struct AggregationRow {
  v1::LossAggregation wire;
  ReductionCounts original;
  ReductionCounts kept;
  GlobalCount global;
  bool has_norm_length = false;
};

std::span<const AggregationRow> AggregationRows();

// Aggregation, denominator and norm_length. Violations get field paths below
// `prefix`, or of global_counts.
kernels::LossReduction DecodeReduction(const v1::PolicyLoss& loss,
                                       const MethodFacts& facts,
                                       const std::string& prefix,
                                       Violations* violations);

// The mean by which the ranks' weights are normalized, or 0: the batch's own.
// Checks all of global_counts, whatever reads it.
Result<double> ReadGivenMean(const v1::CorrectRequest& request,
                             const kernels::WeightSpec& weight);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_
