// The doctor: names what is wrong with a batch from its log-probs, masks and
// advantages alone.
//
// Two steps. Integers are counted over every token. Then at most kMostExamined
// positions, whole rows, are examined: repairs are tried, and the one that
// makes the drift vanish is named, and the drift is attributed to its causes.
// Findings are the same bits on every processor. Positions outside the mask are
// read for one integer count alone, and NaN there is no number that counts.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_EXAMINE_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_EXAMINE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/batch.h"
#include "kernels/doctor/attribution.h"
#include "kernels/doctor/finding.h"

namespace counterweight::kernels::doctor {

struct Diagnosis {
  // In the order of examination: exact facts first.
  std::vector<Finding> findings;
  int64_t tokens = 0;           // of the mask, with finite log-probs
  int64_t examined_tokens = 0;  // of these, by the second step
  int64_t sequences = 0;        // with such tokens, of the second step
  // The causes of the examined tokens' drift; nullopt without tokens.
  std::optional<Attribution> attribution;
};

// REQUIRES: a batch in host memory with response_mask, offsets and at least two
// of kRollout, kOld and kCurrent. kAdvantages and versions are read if they
// are there, as is group_ids, [num_sequences] of any value, or null.
Diagnosis Examine(const Batch& batch, const int64_t* group_ids);

}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_EXAMINE_H_
