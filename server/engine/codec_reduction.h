// Decodes a loss's reduction. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_

#include <cstdint>
#include <span>
#include <string>

#include "counterweight/v1/correction_service.pb.h"
#include "counterweight/v1/method.pb.h"
#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/result.h"

namespace counterweight::server {

struct ReductionCounts {
  kernels::BatchCount batch;
  kernels::RowCount row;
};

// The kernels' form of a LossAggregation by denominator; GLOBAL is
// ORIGINAL here, see ApplyCounts.
struct AggregationRow {
  v1::LossAggregation wire;
  ReductionCounts original;
  ReductionCounts kept;
  bool has_norm_length = false;
};

std::span<const AggregationRow> AggregationRows();

// Decodes aggregation, denominator and norm_length. Violations have field paths
// below `prefix`.
kernels::LossReduction DecodeReduction(const v1::PolicyLoss& loss,
                                       const RequestFacts& facts,
                                       const std::string& prefix,
                                       Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_REDUCTION_H_
