// The reference's LossReduction: the factor of each row's sum.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_FACTORS_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_FACTORS_H_

#include <vector>

#include "kernels/batch.h"
#include "kernels/loss_spec.h"
#include "tests/testing/reference_inputs.h"

namespace counterweight::kernels {

struct Factors {
  double count = 0.0;          // what LossReduction::count counted
  std::vector<double> of_row;  // [num_sequences]
};

// kept: [num_sequences], the keep masks.
Factors FactorsOf(const LossReduction& reduction, const Batch& batch,
                  const std::vector<ReferenceRow>& rows,
                  const std::vector<Mask>& kept);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_FACTORS_H_
