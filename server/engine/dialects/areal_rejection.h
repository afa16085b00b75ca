// AReaL's rejection_sampling.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_REJECTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_REJECTION_H_

#include <cstdint>

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/areal_policies.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

enum class ArealMetric : uint8_t { kRatio, kK1, kK2, kK3 };
enum class ArealAggregation : uint8_t { kMean, kSum, kMax };

struct ArealRejection {
  bool is_on = false;  // the block has one
  bool by_sequence = false;
  bool clamps = false;  // action clamp, else mask
  ArealMetric metric = ArealMetric::kRatio;
  ArealAggregation aggregation = ArealAggregation::kMean;
  // Bounds of the statistic; lower is below every statistic where it is absent.
  double lower = -kernels::kUnbounded;
  double upper = 5.0;
};

ArealRejection ReadArealRejection(const BlockReader& reader,
                                  bool ignore_unknown_fields,
                                  Translation* translation);

// Adds the weight and the rules. REQUIRES: rejection.is_on.
void ApplyArealRejection(const BlockReader& reader,
                         const ArealRejection& rejection,
                         const ArealPolicies& policies,
                         Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_AREAL_REJECTION_H_
