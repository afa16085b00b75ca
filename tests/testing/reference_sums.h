// The reference's BatchSums, added up row by row.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_SUMS_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_SUMS_H_

#include <vector>

#include "kernels/spec.h"
#include "kernels/sums.h"
#include "tests/testing/reference_adder.h"
#include "tests/testing/reference_inputs.h"
#include "tests/testing/reference_rules.h"
#include "tests/testing/reference_weights.h"

namespace counterweight::kernels {

// All sums 0, all extrema those of nothing.
BatchSums EmptySums();

struct RowResult {
  const ReferenceRow& row;
  const RowVerdict& verdict;
  const RowWeights& weights;
  const std::vector<double>& final_weights;  // [length], what the caller gets
};

void AddCounts(const RowResult& result, BatchSums& sums);
void AddDrift(const CorrectionSpec& spec, const ReferenceRow& row,
              Adder<DriftSums> drift, Adder<PeerCorrectionSums> peers,
              Margin& margin);
void AddProbability(RatioSource source, const ReferenceRow& row,
                    Adder<ProbabilitySums> sums);
// `left`: what the first after_rule rules left.
void AddWeights(const WeightSpec& spec, const ReferenceRow& row,
                const RowWeights& weights, const RowVerdict& verdict,
                Adder<WeightSums> sums, Adder<PeerCorrectionSums> peers,
                Margin& margin);
void AddRule(const RejectionRule& rule, const RuleOutcome& outcome,
             Adder<RuleSums> sums, Adder<PeerRuleSums> peers);
// Clears what the spec does not request.
void ForgetPeers(const CorrectionSpec& spec, PeerSums& peers);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_SUMS_H_
