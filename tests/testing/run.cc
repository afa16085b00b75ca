#include "tests/testing/run.h"

#include <algorithm>
#include <memory>

#include "kernels/turn_means.h"

namespace counterweight::kernels {
namespace {

template <class T>
std::vector<T> Slice(const std::vector<T>& values, int64_t begin,
                     int64_t length) {
  return {values.begin() + begin, values.begin() + begin + length};
}

// Fills *corrected with values that no corrector writes, and points there.
Outputs PrepareOutputs(const CorrectionSpec& spec, const OwnedBatch& batch,
                       Corrected* corrected) {
  corrected->weights.assign(batch.num_positions(), kNaN);
  corrected->keep_mask.assign(batch.num_positions(), 0xa5);
  corrected->token_reasons.assign(batch.num_positions(), 0xa5a5);
  corrected->gradient.assign(batch.num_positions(), kNaN);
  corrected->sequence_reasons.assign(batch.num_sequences(), 0xa5a5);
  Outputs outputs;
  outputs.weights = corrected->weights.data();
  outputs.keep_mask = corrected->keep_mask.data();
  outputs.token_reasons = corrected->token_reasons.data();
  if (spec.loss.surrogate != Surrogate::kNone)
    outputs.gradient = corrected->gradient.data();
  outputs.sequence_reasons = corrected->sequence_reasons.data();
  return outputs;
}

// Staging memory that is filled row by row.
class Staging {
 public:
  Staging(const CorrectionSpec& spec, const Batch& source)
      : source_(source), batch_(source) {
    const int64_t positions = source.offsets[source.num_sequences];
    // NaN in every dtype, and a mask that counts everything.
    mask_.assign(static_cast<size_t>(positions) + 1, 0xff);
    batch_.response_mask = mask_.data();
    for (int i = 0; i < kNumInputRoles; ++i) {
      if (source.tensors[i].data == nullptr) continue;
      tensors_[i].assign(
          static_cast<size_t>(positions * SizeOf(source.tensors[i].dtype)) + 1,
          0xff);
      batch_.tensors[i].data = tensors_[i].data();
    }
    // They wait for all rows, so they are those of the source.
    means_.Make(spec, source, {});
    means_.AddTo(&batch_);
  }

  const Batch& batch() const { return batch_; }

  void FillMask() { Fill(&mask_, source_.response_mask, 1, 0, Positions()); }

  void FillRows(int64_t first, int64_t last) {
    const int64_t begin = source_.offsets[first];
    const int64_t end = source_.offsets[last];
    Fill(&mask_, source_.response_mask, 1, begin, end);
    for (int i = 0; i < kNumInputRoles; ++i) {
      const TensorView& tensor = source_.tensors[i];
      if (tensor.data == nullptr) continue;
      Fill(&tensors_[i], tensor.data, SizeOf(tensor.dtype), begin, end);
    }
  }

 private:
  int64_t Positions() const { return source_.offsets[source_.num_sequences]; }

  static void Fill(std::vector<uint8_t>* to, const void* from, int64_t size,
                   int64_t begin, int64_t end) {
    // Not memcpy, which may not be given the null that an empty batch has.
    std::copy_n(static_cast<const uint8_t*>(from) + begin * size,
                (end - begin) * size, to->data() + begin * size);
  }

  Batch source_;
  Batch batch_;
  std::vector<uint8_t> mask_;
  std::vector<uint8_t> tensors_[kNumInputRoles];
  TurnMeans means_;
};

}  // namespace

Corrected RunCorrector(Corrector& corrector, const CorrectionSpec& spec,
                       const OwnedBatch& batch) {
  Corrected corrected;
  const Outputs outputs = PrepareOutputs(spec, batch, &corrected);
  TurnMeans means;
  Batch view = batch.view();
  means.Make(spec, view, {});
  means.AddTo(&view);
  corrected.result = corrector.Correct(spec, view, outputs);
  return corrected;
}

Corrected RunArriving(Corrector& corrector, const CorrectionSpec& spec,
                      const OwnedBatch& batch,
                      const std::vector<int64_t>& arrivals, bool mask_first) {
  Corrected corrected;
  const Outputs outputs = PrepareOutputs(spec, batch, &corrected);
  Staging staging(spec, batch.view());
  if (mask_first) staging.FillMask();
  const std::unique_ptr<CorrectRun> run =
      corrector.Begin(spec, staging.batch(), outputs, nullptr);
  int64_t arrived = 0;
  for (const int64_t rows : arrivals) {
    staging.FillRows(arrived, rows);
    arrived = rows;
    run->Advance(arrived, mask_first || arrived == batch.num_sequences());
  }
  staging.FillRows(arrived, batch.num_sequences());
  corrected.result = run->Finish();
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
