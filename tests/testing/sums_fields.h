// BatchSums as a list of named numbers, for laws that hold field by field.
#ifndef COUNTERWEIGHT_TESTS_TESTING_SUMS_FIELDS_H_
#define COUNTERWEIGHT_TESTS_TESTING_SUMS_FIELDS_H_

#include <string>
#include <vector>

#include "kernels/sums.h"

namespace counterweight::kernels {

// How the fields of two batches make the field of both together.
enum class Fold { kCount, kSum, kMin, kMax, kNone };

struct SumsField {
  std::string name;  // "drift.k3", "rules[2].range.max"
  Fold fold;
  double value;  // counts are exact below 2^53
};

// The fields of the first num_rules rules and all others, always in one order.
std::vector<SumsField> Fields(const BatchSums& sums, int num_rules = kMaxRules);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_SUMS_FIELDS_H_
