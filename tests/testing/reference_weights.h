// The reference's importance weights.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_WEIGHTS_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_WEIGHTS_H_

#include <vector>

#include "kernels/spec.h"
#include "tests/testing/reference_inputs.h"
#include "tests/testing/reference_rules.h"

namespace counterweight::kernels {

// One row. Vectors are [length], 0 where the token does not count.
struct RowWeights {
  std::vector<double> log_ratio;  // aggregated, before its own clamp
  std::vector<double> raw;        // exp of the aggregated, clamped log ratio
  std::vector<double> bounded;
};

// `left` is the mask that aggregates see.
RowWeights WeighRow(const WeightSpec& weight, const ReferenceRow& row,
                    const Mask& left, Margin& margin);

// The mean that the batch's weights are divided by, 1 without normalization.
double Normalizer(const WeightSpec& weight,
                  const std::vector<ReferenceRow>& rows,
                  const std::vector<RowWeights>& weights, Margin& margin);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_WEIGHTS_H_
