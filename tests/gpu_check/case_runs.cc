#include "tests/gpu_check/case_runs.h"

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "tests/testing/random_rows.h"

namespace counterweight::kernels {
namespace {

Outputs Only(WantedOutputs wanted, const Outputs& all) {
  Outputs only;
  switch (wanted) {
    case WantedOutputs::kAll:
      return all;
    case WantedOutputs::kUsual:
      only = all;
      only.token_reasons = nullptr;
      only.sequence_reasons = nullptr;
      break;
    case WantedOutputs::kSums:
      break;
    case WantedOutputs::kWeights:
      only.weights = all.weights;
      break;
    case WantedOutputs::kKeepMask:
      only.keep_mask = all.keep_mask;
      break;
    case WantedOutputs::kTokenReasons:
      only.token_reasons = all.token_reasons;
      break;
    case WantedOutputs::kSequenceReasons:
      only.sequence_reasons = all.sequence_reasons;
      break;
    case WantedOutputs::kGradient:
      only.gradient = all.gradient;
      break;
  }
  return only;
}

// Passes on a request for some outputs.
class WithOutputs final : public Corrector {
 public:
  WithOutputs(Corrector& corrector, WantedOutputs wanted)
      : corrector_(corrector), wanted_(wanted) {}

  CorrectResult Correct(const CorrectionSpec& spec, const Batch& batch,
                        const Outputs& outputs) override {
    return corrector_.Correct(spec, batch, Only(wanted_, outputs));
  }
  std::unique_ptr<CorrectRun> Begin(const CorrectionSpec& spec,
                                    const Batch& batch, const Outputs& outputs,
                                    StopRequest stop) override {
    return corrector_.Begin(spec, batch, Only(wanted_, outputs),
                            std::move(stop));
  }
  BackendInfo Info() const override { return corrector_.Info(); }

 private:
  Corrector& corrector_;
  WantedOutputs wanted_;
};

// A batch and its outputs with copies in another memory, for one call.
class Elsewhere final : public Corrector {
 public:
  Elsewhere(Corrector& corrector, Memory& memory, int64_t misalignment)
      : corrector_(corrector), memory_(memory), misalignment_(misalignment) {}

  CorrectResult Correct(const CorrectionSpec& spec, const Batch& batch,
                        const Outputs& outputs) override {
    const int64_t positions = batch.offsets[batch.num_sequences];
    Batch there = batch;
    for (TensorView& tensor : there.tensors) {
      if (tensor.data == nullptr) continue;
      tensor.data = Take(tensor.data, positions * SizeOf(tensor.dtype),
                         SizeOf(tensor.dtype));
    }
    if (misalignment_ % 2 == 1) {
      there.response_mask =
          static_cast<const uint8_t*>(Take(batch.response_mask, positions, 1));
    }
    Outputs to;
    to.weights = TakeOutput(outputs.weights, positions);
    to.keep_mask = TakeOutput(outputs.keep_mask, positions);
    to.token_reasons = TakeOutput(outputs.token_reasons, positions);
    to.gradient = TakeOutput(outputs.gradient, positions);
    to.sequence_reasons =
        TakeOutput(outputs.sequence_reasons, batch.num_sequences);
    CorrectResult result;
    if (!failed_) result = corrector_.Correct(spec, there, to);
    GiveBack(outputs.weights, to.weights, positions);
    GiveBack(outputs.keep_mask, to.keep_mask, positions);
    GiveBack(outputs.token_reasons, to.token_reasons, positions);
    GiveBack(outputs.gradient, to.gradient, positions);
    GiveBack(outputs.sequence_reasons, to.sequence_reasons,
             batch.num_sequences);
    if (failed_) {
      result.status = CorrectStatus::kDeviceError;
      result.device_error = "copies of the batch to and from the device";
    }
    return result;
  }
  BackendInfo Info() const override { return corrector_.Info(); }

 private:
  void* Take(const void* from, int64_t bytes, int64_t element) {
    const int64_t skipped = misalignment_ * element;
    // An allocation of nothing has no address.
    blocks_.emplace_back(memory_, static_cast<size_t>(bytes + skipped + 1));
    std::byte* data = blocks_.back().data();
    // An empty batch's mask may have no address, which memcpy refuses.
    if (data == nullptr ||
        (bytes > 0 &&
         !memory_.Copy(data + skipped, from, static_cast<size_t>(bytes)))) {
      failed_ = true;
      return nullptr;
    }
    return data + skipped;
  }
  // With the previous content: outputs must not be written beyond their bounds.
  template <class T>
  T* TakeOutput(T* host, int64_t count) {
    if (host == nullptr) return nullptr;
    return static_cast<T*>(Take(host, count * sizeof(T), sizeof(T)));
  }
  template <class T>
  void GiveBack(T* host, const T* there, int64_t count) {
    if (there == nullptr) return;
    failed_ |=
        !memory_.Copy(host, there, static_cast<size_t>(count) * sizeof(T));
  }

  Corrector& corrector_;
  Memory& memory_;
  int64_t misalignment_;
  std::deque<Block> blocks_;
  bool failed_ = false;
};

}  // namespace

Corrected RunWhole(Corrector& corrector, const CheckCase& c) {
  WithOutputs wanted(corrector, c.wanted);
  return RunCorrector(wanted, c.spec, *c.batch);
}

Corrected RunInPieces(Corrector& corrector, const CheckCase& c, uint64_t seed) {
  Random random(seed);
  std::vector<int64_t> arrivals;
  for (int64_t rows = 0; rows < c.batch->num_sequences();) {
    rows += random.Integer(1, c.batch->num_sequences() - rows);
    arrivals.push_back(rows);
  }
  WithOutputs wanted(corrector, c.wanted);
  return RunArriving(wanted, c.spec, *c.batch, arrivals, random.Chance(0.5));
}

Corrected RunResident(Corrector& corrector, const CheckCase& c, Memory& memory,
                      int64_t misalignment) {
  Elsewhere there(corrector, memory, misalignment);
  WithOutputs wanted(there, c.wanted);
  return RunCorrector(wanted, c.spec, *c.batch);
}

}  // namespace counterweight::kernels
