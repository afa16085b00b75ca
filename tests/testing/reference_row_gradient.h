// The reference's gradient of one row, worked out by hand.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_ROW_GRADIENT_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_ROW_GRADIENT_H_

#include <vector>

#include "kernels/loss_spec.h"
#include "tests/testing/reference_row_loss.h"
#include "tests/testing/reference_rules.h"

namespace counterweight::kernels {

// Vectors are [length].
struct RowGradient {
  std::vector<double> gradient;
  // Sums of the absolute values of what a token's gradient adds up.
  std::vector<double> size;
  std::vector<ClipEvents> events;
  // |factor w dV/dlp| before a row shares its own, without clipping and as it
  // is.
  std::vector<double> unclipped_slope, slope;
};

RowGradient GradientOf(const LossSpec& loss, const ReferenceLossRow& row,
                       Margin& margin);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_ROW_GRADIENT_H_
