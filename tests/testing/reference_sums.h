// The reference's BatchSums, added up row by row.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_SUMS_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_SUMS_H_

#include <cmath>

#include "kernels/spec.h"
#include "kernels/sums.h"
#include "tests/testing/reference_inputs.h"
#include "tests/testing/reference_rules.h"
#include "tests/testing/reference_weights.h"

namespace counterweight::kernels {

// All sums 0, all extrema those of nothing.
BatchSums EmptySums();

// A struct of sums and, beside it, the sums of the addends' absolute values.
template <class Sums>
struct Adder {
  Sums& value;
  Sums& magnitude;

  void Add(double Sums::*field, double x) { Add(field, x, std::fabs(x)); }
  // For an addend that is itself a sum of that size, less what cancelled.
  void Add(double Sums::*field, double x, double size) {
    value.*field += x;
    magnitude.*field += size;
  }
  void Extend(Extrema Sums::*field, double x) {
    Extrema& range = value.*field;
    range.min = x < range.min ? x : range.min;
    range.max = x > range.max ? x : range.max;
  }
};

struct RowResult {
  const ReferenceRow& row;
  const RowVerdict& verdict;
  const RowWeights& weights;
  const std::vector<double>& final_weights;  // [length], what the caller gets
};

void AddCounts(const RowResult& result, BatchSums& sums);
void AddDrift(const CorrectionSpec& spec, const ReferenceRow& row,
              Adder<DriftSums> drift, Margin& margin);
void AddProbability(RatioSource source, const ReferenceRow& row,
                    Adder<ProbabilitySums> sums);
void AddWeights(const WeightSpec& spec, const ReferenceRow& row,
                const RowWeights& weights, Adder<WeightSums> sums,
                Margin& margin);
void AddRule(const RejectionRule& rule, const RuleOutcome& outcome,
             Adder<RuleSums> sums);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_SUMS_H_
