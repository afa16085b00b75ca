// The reference's policy loss of a batch.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_LOSS_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_LOSS_H_

#include <vector>

#include "kernels/batch.h"
#include "kernels/spec.h"
#include "kernels/sums.h"
#include "tests/testing/reference_inputs.h"
#include "tests/testing/reference_row_loss.h"
#include "tests/testing/reference_rules.h"

namespace counterweight::kernels {

// Inputs of the loss: a batch with finished rules and weights.
struct CorrectedRows {
  const std::vector<ReferenceRow>& rows;
  const std::vector<RowVerdict>& verdicts;
  // [num_sequences][length], the caller's weights.
  const std::vector<std::vector<double>>& weights;
};

// LossSpec::prescales_advantages, before anything reads them.
void PrescaleAdvantages(const LossSpec& loss, const Batch& batch,
                        std::vector<ReferenceRow>& rows);

struct ReferenceLoss {
  std::vector<ReferenceLossRow> rows;
  // [num_positions] and the sums of the absolute values of its terms.
  std::vector<double> gradient, gradient_size;
  LossSums sums{};
  LossSums magnitudes{};
  PeerLossSums peers{};
  PeerLossSums peer_magnitudes{};
};

// REQUIRES: spec has a loss.
ReferenceLoss LossOf(const CorrectionSpec& spec, const Batch& batch,
                     const CorrectedRows& corrected, Margin& margin);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_LOSS_H_
