// The results of kernels/, computed independently: float64 throughout, one row
// at a time, no code shared with kernels/ except the declarations of its data.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/batch.h"
#include "kernels/spec.h"
#include "kernels/sums.h"
#include "tests/testing/reference_inputs.h"
#include "tests/testing/reference_row_loss.h"

namespace counterweight::kernels {

struct ReferenceResult {
  // Policy REJECT met a non-finite number; the rest is then empty.
  std::optional<ReferenceNonFinite> refused;

  // [num_positions] each, as in Outputs.
  std::vector<double> weights;
  std::vector<uint8_t> keep_mask;
  std::vector<uint16_t> token_reasons;
  // [num_sequences]
  std::vector<uint16_t> sequence_reasons;
  // [num_positions], and the sums of the absolute values of each gradient's
  // terms; empty if the spec has no loss.
  std::vector<double> gradient, gradient_size;
  // [num_sequences], the loss's view of each row; likewise.
  std::vector<ReferenceLossRow> loss_rows;

  BatchSums sums{};
  // For each sum the sum of its addends' absolute values.
  BatchSums magnitudes{};

  // Smallest relative distance between a number and the bound it was compared
  // with. Below 1e-5, float32 may rightly decide otherwise.
  double margin = std::numeric_limits<double>::infinity();
  // The smallest such distance itself.
  double distance = std::numeric_limits<double>::infinity();
};

ReferenceResult Reference(const CorrectionSpec& spec, const Batch& batch);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_H_
