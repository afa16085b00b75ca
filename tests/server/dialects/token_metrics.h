// Metrics of tokens from the answer of the float64 reference.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_TOKEN_METRICS_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_TOKEN_METRICS_H_

#include <vector>

#include "kernels/batch.h"
#include "server/engine/dialect.h"
#include "tests/testing/reference.h"

namespace counterweight::server {

// `result`: Reference(translation.spec, batch).
inline MetricMap TokenMetricsOf(const Translation& translation,
                                const kernels::Batch& batch,
                                const kernels::ReferenceResult& result) {
  MetricMap metrics;
  if (!translation.token_metrics) return metrics;
  const std::vector<float> weights(result.weights.begin(),
                                   result.weights.end());
  translation.token_metrics(
      CorrectedTokens(batch, translation.spec.non_finite,
                      result.keep_mask.data(), weights.data()),
      result.sums, &metrics);
  return metrics;
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_TOKEN_METRICS_H_
