#include "tests/testing/run.h"

#include <limits>

namespace counterweight::kernels {
namespace {

template <class T>
std::vector<T> Slice(const std::vector<T>& values, int64_t begin,
                     int64_t length) {
  return {values.begin() + begin, values.begin() + begin + length};
}

}  // namespace

Corrected RunCorrector(Corrector& corrector, const CorrectionSpec& spec,
                       const OwnedBatch& batch) {
  Corrected corrected;
  corrected.weights.assign(batch.num_positions(),
                           std::numeric_limits<float>::quiet_NaN());
  corrected.keep_mask.assign(batch.num_positions(), 0xa5);
  corrected.token_reasons.assign(batch.num_positions(), 0xa5a5);
  corrected.gradient.assign(batch.num_positions(),
                            std::numeric_limits<float>::quiet_NaN());
  corrected.sequence_reasons.assign(batch.num_sequences(), 0xa5a5);
  Outputs outputs;
  outputs.weights = corrected.weights.data();
  outputs.keep_mask = corrected.keep_mask.data();
  outputs.token_reasons = corrected.token_reasons.data();
  if (spec.loss.surrogate != Surrogate::kNone)
    outputs.gradient = corrected.gradient.data();
  outputs.sequence_reasons = corrected.sequence_reasons.data();
  corrected.result = corrector.Correct(spec, batch.view(), outputs);
  return corrected;
}

Corrected RowOutputs(const Corrected& corrected, const OwnedBatch& batch,
                     int64_t i, int64_t length) {
  const int64_t begin = batch.view().offsets[i];
  Corrected row;
  row.weights = Slice(corrected.weights, begin, length);
  row.keep_mask = Slice(corrected.keep_mask, begin, length);
  row.token_reasons = Slice(corrected.token_reasons, begin, length);
  row.gradient = Slice(corrected.gradient, begin, length);
  row.sequence_reasons = {corrected.sequence_reasons[i]};
  return row;
}

}  // namespace counterweight::kernels
