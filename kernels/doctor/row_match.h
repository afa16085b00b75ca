// Rows that belong to other rows, and rows that occur twice.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_ROW_MATCH_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_ROW_MATCH_H_

#include <cstdint>
#include <vector>

#include "kernels/doctor/row_facts.h"
#include "kernels/doctor/sample.h"

namespace counterweight::kernels::doctor {

// Row `row` of the second stream fits row `other` of the first one, both
// indices of the sample's rows.
struct Match {
  int64_t row;
  int64_t other;
};

struct Matches {
  std::vector<Match> matches;
  // Rows that were looked at, of those that do not fit their own.
  int64_t tried = 0;
  int64_t unfit = 0;
};

// Compares the first 24 tokens of rows that do not fit their own row with those
// of all rows; of more rows than the time allows, the first ones.
Matches FindOtherRows(const Sample& sample);

// Rows of the sample with the same log-probs of the first stream, bit for bit,
// as another one, which has a probability below 1/1000 for all pairs of rows
// together; ascending.
std::vector<int64_t> FindCopies(const Sample& sample, const RowFacts& facts);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_ROW_MATCH_H_
