// An attribution token by token in the widest floating point of the machine.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_DOCTOR_ATTRIBUTION_REFERENCE_H_
#define COUNTERWEIGHT_TESTS_KERNELS_DOCTOR_ATTRIBUTION_REFERENCE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "tests/testing/batch_builder.h"

namespace counterweight::kernels::doctor {

struct ReferenceBucket {
  int64_t tokens = 0;
  long double log_ratio = 0.0L;
  long double k3 = 0.0L;
  std::map<int, int64_t> magnitudes;  // tokens by bucket of the magnitude
};

// By the index of the bucket.
using ReferenceBuckets = std::map<int, ReferenceBucket>;

struct ReferenceAttribution {
  // k3 and kl are computed from the one log ratio current - rollout.
  long double k3 = 0.0L, kl = 0.0L;
  long double engine_staleness = 0.0L, update = 0.0L, interaction = 0.0L;
  long double kl_engine_staleness = 0.0L, kl_update = 0.0L;
  ReferenceBuckets by_magnitude, by_position, by_length, by_log_ratio;
};

// Rows of log-probs with ratios in [-20, 20].
ReferenceAttribution Reference(const std::vector<Row>& rows);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_TESTS_KERNELS_DOCTOR_ATTRIBUTION_REFERENCE_H_
