// Exhaustive specs: every value of every axis of a method, alone.
#ifndef COUNTERWEIGHT_TESTS_GPU_CHECK_SYSTEMATIC_SPECS_H_
#define COUNTERWEIGHT_TESTS_GPU_CHECK_SYSTEMATIC_SPECS_H_

#include <string>
#include <vector>

#include "kernels/spec.h"

namespace counterweight::kernels {

struct NamedSpec {
  std::string name;
  CorrectionSpec spec;
};

// All of these are valid, and their bounds take effect if log ratios have the
// deviation `spread`.

// A token weight and one rule: estimator x aggregation x condition x effect.
std::vector<NamedSpec> EveryStatistic(double spread);

// A weight alone: level x bound, of every source, normalized and not.
std::vector<NamedSpec> EveryWeight(double spread);

// A loss alone: every surrogate, at each level that it has; every estimator of
// a KL penalty beside it.
std::vector<NamedSpec> EverySurrogate(double spread);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_GPU_CHECK_SYSTEMATIC_SPECS_H_
