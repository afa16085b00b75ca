#include "tests/kernels/cuda_on_cpu/placed_run.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace counterweight::kernels {
namespace {

// Two devices, unless the environment has another number; before the first
// call.
const bool two_devices =
    setenv("COUNTERWEIGHT_FAKE_CUDA_DEVICES", "2", /*replace=*/0) == 0;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// Bytes of any kind of memory, initially garbage.
class Memory {
 public:
  Memory(Corrector* corrector, Where where, size_t size)
      : corrector_(corrector), where_(where), size_(size) {
    const size_t room = size + kShift + 1;
    if (where == Where::kPageable) {
      begin_ = std::malloc(room);
    } else if (where == Where::kPinned) {
      begin_ = corrector->AllocateHost(room);
    } else {
      Require(cudaMalloc(&begin_, room) == cudaSuccess, "no device memory");
    }
    Require(begin_ != nullptr, "no memory");
    const std::vector<char> rubbish(size, static_cast<char>(0xa5));
    Write(rubbish.data(), 0, size);
  }
  ~Memory() {
    if (where_ == Where::kPageable) {
      std::free(begin_);
    } else if (where_ == Where::kPinned) {
      corrector_->FreeHost(begin_);
    } else {
      cudaFree(begin_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* data() const {
    return static_cast<char*>(begin_) +
           (where_ == Where::kDeviceUnaligned ? kShift : 0);
  }
  void Write(const void* from, size_t begin, size_t end) {
    if (begin == end) return;
    const void* source = static_cast<const char*>(from) + begin;
    if (on_device()) {
      Require(cudaMemcpy(data() + begin, source, end - begin,
                         cudaMemcpyHostToDevice) == cudaSuccess,
              "no copy to the device");
    } else {
      std::memcpy(data() + begin, source, end - begin);
    }
  }
  void Read(void* to) const {
    if (size_ == 0) return;
    if (on_device()) {
      // After a device error the copy fails, and the test reads no result.
      cudaMemcpy(to, data(), size_, cudaMemcpyDeviceToHost);
    } else {
      std::memcpy(to, data(), size_);
    }
  }

 private:
  static constexpr size_t kShift = 2;
  bool on_device() const {
    return where_ == Where::kDevice || where_ == Where::kDeviceUnaligned;
  }

  Corrector* const corrector_;
  const Where where_;
  const size_t size_;
  void* begin_ = nullptr;
};

// A copy of the batch in other memory.
class PlacedBatch {
 public:
  PlacedBatch(Corrector* corrector, const OwnedBatch& source, Where where)
      : source_(source.view()), batch_(source_) {
    const int64_t positions = source.num_positions();
    // With unaligned tensors the mask is the host's, so that both are tried.
    mask_ = std::make_unique<Memory>(
        corrector, where == Where::kDeviceUnaligned ? Where::kPageable : where,
        static_cast<size_t>(positions));
    batch_.response_mask = reinterpret_cast<const uint8_t*>(mask_->data());
    for (int i = 0; i < kNumTensors; ++i) {
      if (source_.tensors[i].data == nullptr) continue;
      const int64_t size = SizeOf(source_.tensors[i].dtype);
      tensors_[i] = std::make_unique<Memory>(
          corrector, where, static_cast<size_t>(positions * size));
      batch_.tensors[i].data = tensors_[i]->data();
    }
  }

  const Batch& batch() const { return batch_; }

  void FillMask() { FillMask(0, source_.num_sequences); }

  void FillRows(int64_t first, int64_t last) {
    FillMask(first, last);
    for (int i = 0; i < kNumTensors; ++i) {
      if (tensors_[i] == nullptr) continue;
      const int64_t size = SizeOf(source_.tensors[i].dtype);
      tensors_[i]->Write(source_.tensors[i].data,
                         static_cast<size_t>(source_.offsets[first] * size),
                         static_cast<size_t>(source_.offsets[last] * size));
    }
  }

 private:
  void FillMask(int64_t first, int64_t last) {
    mask_->Write(source_.response_mask,
                 static_cast<size_t>(source_.offsets[first]),
                 static_cast<size_t>(source_.offsets[last]));
  }

  const Batch source_;
  Batch batch_;
  std::unique_ptr<Memory> mask_;
  std::unique_ptr<Memory> tensors_[kNumTensors];
};

template <class T>
class PlacedOutput {
 public:
  PlacedOutput(Corrector* corrector, Where where, int64_t count,
               std::vector<T>* host)
      : host_(host),
        memory_(corrector, where, static_cast<size_t>(count) * sizeof(T)) {
    host->resize(static_cast<size_t>(count));
  }
  ~PlacedOutput() { memory_.Read(host_->data()); }
  PlacedOutput(const PlacedOutput&) = delete;
  PlacedOutput& operator=(const PlacedOutput&) = delete;

  T* data() const { return reinterpret_cast<T*>(memory_.data()); }

 private:
  std::vector<T>* const host_;
  Memory memory_;
};

}  // namespace

std::unique_ptr<Corrector> MakeFakeCuda(const CudaOptions& options,
                                        int device) {
  std::string error;
  std::unique_ptr<Corrector> made = MakeCudaCorrector(device, options, &error);
  Require(made != nullptr, error.c_str());
  return made;
}

Corrected RunPlaced(Corrector& corrector, const CorrectionSpec& spec,
                    const OwnedBatch& batch, const PlacedRun& how) {
  Corrected corrected;
  PlacedBatch placed(&corrector, batch, how.inputs);
  const int64_t positions = batch.num_positions();
  const int64_t rows = batch.num_sequences();
  const PlacedOutput weights(&corrector, how.outputs, positions,
                             &corrected.weights);
  const PlacedOutput keep_mask(&corrector, how.outputs, positions,
                               &corrected.keep_mask);
  const PlacedOutput token_reasons(&corrector, how.outputs, positions,
                                   &corrected.token_reasons);
  const PlacedOutput sequence_reasons(&corrector, how.outputs, rows,
                                      &corrected.sequence_reasons);
  const bool has_loss = spec.loss.surrogate != Surrogate::kNone;
  const PlacedOutput gradient(&corrector, how.outputs, has_loss ? positions : 0,
                              &corrected.gradient);
  Outputs outputs;
  outputs.weights = weights.data();
  outputs.keep_mask = keep_mask.data();
  outputs.token_reasons = token_reasons.data();
  outputs.sequence_reasons = sequence_reasons.data();
  if (has_loss) outputs.gradient = gradient.data();
  if (how.mask_first) placed.FillMask();
  if (how.arrivals.empty()) placed.FillRows(0, rows);
  const std::unique_ptr<CorrectRun> run =
      corrector.Begin(spec, placed.batch(), outputs, how.stop);
  int64_t arrived = 0;
  for (const int64_t next : how.arrivals) {
    placed.FillRows(arrived, next);
    arrived = next;
    run->Advance(arrived, how.mask_first || arrived == rows);
  }
  placed.FillRows(arrived, rows);
  corrected.result = run->Finish();
  return corrected;
}

}  // namespace counterweight::kernels
