// One record for each row of the sample.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_ROW_FACTS_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_ROW_FACTS_H_

#include <cstdint>
#include <vector>

#include "kernels/doctor/sample.h"

namespace counterweight::kernels::doctor {

// Zeros of one stream at the ends of a row, or of a run of the mask.
struct Edges {
  int64_t head = 0;
  int64_t tail = 0;
  bool is_empty = false;  // nothing but zeros; head and tail are 0 then
};

// The part of a row from which on the two sides do not agree: the suffix with
// the largest sum of (capped distance - 1/4).
struct Suffix {
  double gain = 0.0;
  int64_t at = 0;       // its first token
  double before = 0.0;  // means of the distance
  double after = 0.0;
};

struct RowFact {
  double drift = 0.0;     // sum of capped distances
  double log_prob = 0.0;  // sum of the first stream
  Edges edges[2];
  Suffix suffix;
};

struct RowFacts {
  std::vector<RowFact> rows;
  // Mean distance over the first thirds of the rows.
  double level = 0.0;
  // Zeros at the ends of the mask's runs, of either stream of the pair.
  int64_t run_edges[2] = {};
};

RowFacts FindRowFacts(const Sample& sample);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_ROW_FACTS_H_
