// The reference's KL_COV and CLIP_COV: which tokens of a batch are selected.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_COVARIANCE_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_COVARIANCE_H_

#include <vector>

#include "kernels/loss_spec.h"
#include "tests/testing/reference_row_loss.h"
#include "tests/testing/reference_rules.h"

namespace counterweight::kernels {

// Marks the selected points of all rows; nothing for other surrogates.
void SelectByCovariance(const LossSpec& loss,
                        std::vector<ReferenceLossRow>& rows, Margin& margin);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_COVARIANCE_H_
