// Runs a corrector on an owned batch and keeps its outputs.
#ifndef COUNTERWEIGHT_TESTS_TESTING_RUN_H_
#define COUNTERWEIGHT_TESTS_TESTING_RUN_H_

#include <cstdint>
#include <vector>

#include "kernels/corrector.h"
#include "tests/testing/batch_builder.h"

namespace counterweight::kernels {

struct Corrected {
  CorrectResult result;
  // [num_positions]
  std::vector<float> weights;
  std::vector<uint8_t> keep_mask;
  std::vector<uint16_t> token_reasons;
  std::vector<float> gradient;
  // [num_sequences]
  std::vector<uint16_t> sequence_reasons;

  const BatchSums& sums() const { return result.sums; }
};

// All outputs; unwritten ones keep a value that the corrector never writes
// (NaN, 0xa5...).
Corrected RunCorrector(Corrector& corrector, const CorrectionSpec& spec,
                       const OwnedBatch& batch);

// The same, of a batch that arrives: the run receives `arrivals`, ascending
// numbers of rows, one after the other, the mask as complete from the start if
// `mask_first`. Bytes of rows that have not arrived are wrong until they do.
Corrected RunArriving(Corrector& corrector, const CorrectionSpec& spec,
                      const OwnedBatch& batch,
                      const std::vector<int64_t>& arrivals, bool mask_first);

// The outputs of row i alone, of its first `length` positions.
Corrected RowOutputs(const Corrected& corrected, const OwnedBatch& batch,
                     int64_t i, int64_t length);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_RUN_H_
