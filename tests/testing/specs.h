// Specs in one line.
#ifndef COUNTERWEIGHT_TESTS_TESTING_SPECS_H_
#define COUNTERWEIGHT_TESTS_TESTING_SPECS_H_

#include <initializer_list>

#include "kernels/spec.h"
#include "tests/testing/random_rows.h"

namespace counterweight::kernels {

CorrectionSpec WithWeight(const WeightSpec& weight);
CorrectionSpec WithRules(std::initializer_list<RejectionRule> rules);
CorrectionSpec WithWeightAndRules(const WeightSpec& weight,
                                  std::initializer_list<RejectionRule> rules);

// A spec with every feature: a truncated token weight, a rule of each
// aggregation, both effects, a condition, probability metrics.
CorrectionSpec BusySpec();

// Valid; bounds near the typical size of their statistic at that spread, so
// that rules take effect.
CorrectionSpec RandomSpec(Random& random, double spread);

// The same with means over turns here and there, where it may have them.
CorrectionSpec WithTurns(Random& random, const CorrectionSpec& of);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_SPECS_H_
