// Metrics of tokens from the answer of the float64 reference.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_TOKEN_METRICS_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_TOKEN_METRICS_H_

#include <vector>

#include "kernels/batch.h"
#include "server/engine/dialect.h"
#include "tests/testing/batch_builder.h"
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
      CorrectedTokens(batch, translation.spec, result.keep_mask.data(),
                      weights.data()),
      result.sums, &metrics);
  return metrics;
}

// The same for rows after a correction; no sums are read.
inline MetricMap TokenMetricsOf(const Translation& translation,
                                const std::vector<kernels::Row>& rows,
                                const std::vector<uint8_t>& keep,
                                const std::vector<float>& weights) {
  const kernels::OwnedBatch owned(rows);
  const kernels::Batch batch = owned.view();
  MetricMap metrics;
  translation.token_metrics(
      CorrectedTokens(batch, translation.spec, keep.data(), weights.data()), {},
      &metrics);
  return metrics;
}

// A row with the same numbers in all tensors; all tokens count.
inline kernels::Row RowOf(const std::vector<float>& numbers) {
  kernels::Row row;
  row.mask.assign(numbers.size(), 1);
  for (std::vector<float>& values : row.values) values = numbers;
  return row;
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_TOKEN_METRICS_H_
