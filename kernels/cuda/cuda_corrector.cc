// The CUDA backend: uploads a batch, walks it, downloads the answer.
// Overlapping the three is a later concern; here results must be right.
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/launch.h"
#include "kernels/float_modes.h"
#include "kernels/walk/batch_sums.h"
#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
namespace {

#define COUNTERWEIGHT_CUDA_TRY(call)                        \
  do {                                                      \
    const cudaError_t error_of_call = (call);               \
    if (error_of_call != cudaSuccess) return error_of_call; \
  } while (false)

// A stream for the length of one request.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  cudaError_t Create() {
    return cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Measures what a stream does between two points.
class Stopwatch {
 public:
  Stopwatch() = default;
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    if (start_ != nullptr) cudaEventDestroy(start_);
    if (stop_ != nullptr) cudaEventDestroy(stop_);
  }
  cudaError_t Start(cudaStream_t stream) {
    COUNTERWEIGHT_CUDA_TRY(cudaEventCreate(&start_));
    COUNTERWEIGHT_CUDA_TRY(cudaEventCreate(&stop_));
    return cudaEventRecord(start_, stream);
  }
  cudaError_t Stop(cudaStream_t stream) {
    return cudaEventRecord(stop_, stream);
  }
  // REQUIRES: the stream has passed Stop().
  cudaError_t Seconds(double* seconds) const {
    float milliseconds = 0.0f;
    COUNTERWEIGHT_CUDA_TRY(cudaEventElapsedTime(&milliseconds, start_, stop_));
    *seconds = static_cast<double>(milliseconds) * 1e-3;
    return cudaSuccess;
  }

 private:
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

// Everything of one request that lies on the device.
struct DeviceMemory {
  DeviceBuffer<char> inputs[kNumInputRoles];
  DeviceBuffer<uint8_t> mask;
  DeviceBuffer<float> weights;
  DeviceBuffer<uint8_t> keep_mask;
  DeviceBuffer<uint16_t> token_reasons;
  DeviceBuffer<uint16_t> sequence_reasons;
  DeviceBuffer<DeviceSegment> segments;
  DeviceBuffer<int64_t> row_segments;
  DeviceBuffer<SegmentRecord> records;
  DeviceBuffer<PrefixBase> bases;
  DeviceBuffer<RowState> states;
  DeviceBuffer<RowRecord> rows;
  DeviceBuffer<uint32_t> reasons;
};

struct Segments {
  std::vector<DeviceSegment> segments;
  std::vector<int64_t> row_segments;  // [num_sequences + 1]
  bool any_row_has_several = false;
};

Segments CutRows(const Batch& batch) {
  Segments cut;
  for (int64_t row = 0; row < batch.num_sequences; ++row) {
    cut.row_segments.push_back(static_cast<int64_t>(cut.segments.size()));
    const int64_t end = batch.offsets[row + 1];
    int64_t begin = batch.offsets[row];
    cut.any_row_has_several =
        cut.any_row_has_several || end - begin > kSegmentPositions;
    do {
      const int64_t next =
          begin + kSegmentPositions < end ? begin + kSegmentPositions : end;
      cut.segments.push_back({begin, next, row});
      begin = next;
    } while (begin < end);
  }
  cut.row_segments.push_back(static_cast<int64_t>(cut.segments.size()));
  return cut;
}

template <class T>
cudaError_t AllocateAndUpload(DeviceBuffer<T>* buffer, const T* from,
                              int64_t size, cudaStream_t stream) {
  COUNTERWEIGHT_CUDA_TRY(buffer->Allocate(size, stream));
  return buffer->Upload(from);
}

class CudaCorrector final : public Corrector {
 public:
  CudaCorrector(int device, DeviceInfo info)
      : device_(device), info_(std::move(info)) {}

  CorrectResult Correct(const CorrectionSpec& spec, const Batch& batch,
                        const Outputs& outputs) override {
    const DefaultFloatModes modes;
    const Plan plan = MakePlan(spec);
    CorrectResult result;
    const cudaError_t error = Run(plan, batch, outputs, &result);
    if (error != cudaSuccess) {
      result.status = CorrectStatus::kDeviceError;
      result.device_error = cudaGetErrorString(error);
    }
    return result;
  }

  BackendInfo Info() const override { return {"cuda", "", 0, {info_}}; }

 private:
  cudaError_t Run(const Plan& plan, const Batch& batch, const Outputs& outputs,
                  CorrectResult* result) {
    if (batch.num_sequences == 0) {
      RowRecord nothing{};
      clear(plan, nothing);
      *result = MakeResult(plan, batch, nothing);
      return cudaSuccess;
    }
    COUNTERWEIGHT_CUDA_TRY(cudaSetDevice(device_));
    Stream stream;
    COUNTERWEIGHT_CUDA_TRY(stream.Create());
    DeviceMemory memory;
    const Segments cut = CutRows(batch);
    DeviceJob job{};
    COUNTERWEIGHT_CUDA_TRY(Upload(plan, batch, stream.get(), &memory, &job));
    COUNTERWEIGHT_CUDA_TRY(
        AllocateOutputs(batch, outputs, stream.get(), &memory, &job));
    COUNTERWEIGHT_CUDA_TRY(
        AllocateSums(plan, batch, cut, stream.get(), &memory, &job));
    Stopwatch stopwatch;
    COUNTERWEIGHT_CUDA_TRY(stopwatch.Start(stream.get()));
    COUNTERWEIGHT_CUDA_TRY(
        Walk(plan, cut.any_row_has_several, job, stream.get()));
    COUNTERWEIGHT_CUDA_TRY(stopwatch.Stop(stream.get()));
    RowRecord total;
    COUNTERWEIGHT_CUDA_TRY(cudaMemcpyAsync(
        &total, job.rows, sizeof(total), cudaMemcpyDeviceToHost, stream.get()));
    COUNTERWEIGHT_CUDA_TRY(cudaStreamSynchronize(stream.get()));
    *result = MakeResult(plan, batch, total);
    COUNTERWEIGHT_CUDA_TRY(stopwatch.Seconds(&result->device_seconds));
    if (result->status != CorrectStatus::kOk) return cudaSuccess;
    return Download(batch, outputs, result->sums.weight.normalizer, memory, job,
                    stream.get());
  }

  static cudaError_t Upload(const Plan& plan, const Batch& batch,
                            cudaStream_t stream, DeviceMemory* memory,
                            DeviceJob* job) {
    const int64_t positions = batch.offsets[batch.num_sequences];
    job->batch = batch;
    for (int r = 0; r < kNumInputRoles; ++r) {
      if ((plan.inputs >> r & 1u) == 0) continue;
      const TensorView& tensor = batch.tensors[r];
      COUNTERWEIGHT_CUDA_TRY(AllocateAndUpload(
          &memory->inputs[r], static_cast<const char*>(tensor.data),
          positions * SizeOf(tensor.dtype), stream));
      job->batch.tensors[r].data = memory->inputs[r].data();
    }
    COUNTERWEIGHT_CUDA_TRY(AllocateAndUpload(&memory->mask, batch.response_mask,
                                             positions, stream));
    job->batch.response_mask = memory->mask.data();
    return cudaSuccess;
  }

  static cudaError_t AllocateOutputs(const Batch& batch, const Outputs& outputs,
                                     cudaStream_t stream, DeviceMemory* memory,
                                     DeviceJob* job) {
    const int64_t positions = batch.offsets[batch.num_sequences];
    if (outputs.weights != nullptr) {
      COUNTERWEIGHT_CUDA_TRY(memory->weights.Allocate(positions, stream));
    }
    if (outputs.keep_mask != nullptr) {
      COUNTERWEIGHT_CUDA_TRY(memory->keep_mask.Allocate(positions, stream));
    }
    if (outputs.token_reasons != nullptr) {
      COUNTERWEIGHT_CUDA_TRY(memory->token_reasons.Allocate(positions, stream));
    }
    if (outputs.sequence_reasons != nullptr) {
      COUNTERWEIGHT_CUDA_TRY(
          memory->sequence_reasons.Allocate(batch.num_sequences, stream));
    }
    COUNTERWEIGHT_CUDA_TRY(
        memory->reasons.Allocate(batch.num_sequences, stream));
    COUNTERWEIGHT_CUDA_TRY(memory->reasons.Clear());
    job->outputs.weights = memory->weights.data();
    job->outputs.keep_mask = memory->keep_mask.data();
    job->outputs.token_reasons = memory->token_reasons.data();
    job->reasons = memory->reasons.data();
    return cudaSuccess;
  }

  static cudaError_t AllocateSums(const Plan& plan, const Batch& batch,
                                  const Segments& cut, cudaStream_t stream,
                                  DeviceMemory* memory, DeviceJob* job) {
    const auto segments = static_cast<int64_t>(cut.segments.size());
    COUNTERWEIGHT_CUDA_TRY(AllocateAndUpload(
        &memory->segments, cut.segments.data(), segments, stream));
    COUNTERWEIGHT_CUDA_TRY(AllocateAndUpload(&memory->row_segments,
                                             cut.row_segments.data(),
                                             batch.num_sequences + 1, stream));
    COUNTERWEIGHT_CUDA_TRY(memory->records.Allocate(segments, stream));
    COUNTERWEIGHT_CUDA_TRY(
        memory->bases.Allocate(segments * plan.num_prefixes, stream));
    COUNTERWEIGHT_CUDA_TRY(memory->bases.Clear());
    COUNTERWEIGHT_CUDA_TRY(
        memory->states.Allocate(batch.num_sequences, stream));
    COUNTERWEIGHT_CUDA_TRY(memory->states.Clear());
    COUNTERWEIGHT_CUDA_TRY(memory->rows.Allocate(batch.num_sequences, stream));
    job->num_segments = segments;
    job->segments = memory->segments.data();
    job->row_segments = memory->row_segments.data();
    job->records = memory->records.data();
    job->bases = memory->bases.data();
    job->states = memory->states.data();
    job->rows = memory->rows.data();
    return cudaSuccess;
  }

  // Rows of one segment repeat passes that they do not need: the same state
  // comes out again.
  static cudaError_t Walk(const Plan& plan, bool several, const DeviceJob& job,
                          cudaStream_t stream) {
    if (plan.streams) {
      COUNTERWEIGHT_CUDA_TRY(LaunchBoth(plan, job, stream));
      COUNTERWEIGHT_CUDA_TRY(LaunchSettle(plan, job, stream));
    } else {
      const int passes = several ? plan.passes : plan.single_segment_passes;
      for (int pass = 0; pass < passes; ++pass) {
        COUNTERWEIGHT_CUDA_TRY(LaunchStatistics(plan, job, stream));
        COUNTERWEIGHT_CUDA_TRY(LaunchSettle(plan, job, stream));
      }
      COUNTERWEIGHT_CUDA_TRY(LaunchOutputs(plan, job, stream));
    }
    return LaunchFoldRows(plan, job, stream);
  }

  static cudaError_t Download(const Batch& batch, const Outputs& outputs,
                              double normalizer, const DeviceMemory& memory,
                              const DeviceJob& job, cudaStream_t stream) {
    if (outputs.weights != nullptr) {
      if (normalizer != 1.0) {
        COUNTERWEIGHT_CUDA_TRY(LaunchDivide(
            job.outputs.weights, memory.weights.size(), normalizer, stream));
      }
      COUNTERWEIGHT_CUDA_TRY(memory.weights.Download(outputs.weights));
    }
    if (outputs.keep_mask != nullptr) {
      COUNTERWEIGHT_CUDA_TRY(memory.keep_mask.Download(outputs.keep_mask));
    }
    if (outputs.token_reasons != nullptr) {
      COUNTERWEIGHT_CUDA_TRY(
          memory.token_reasons.Download(outputs.token_reasons));
    }
    if (outputs.sequence_reasons != nullptr) {
      COUNTERWEIGHT_CUDA_TRY(LaunchNarrow(job.reasons, batch.num_sequences,
                                          memory.sequence_reasons.data(),
                                          stream));
      COUNTERWEIGHT_CUDA_TRY(
          memory.sequence_reasons.Download(outputs.sequence_reasons));
    }
    return cudaStreamSynchronize(stream);
  }

  int device_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Corrector> MakeCudaCorrector(int device, std::string* error) {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && device >= count) {
    *error = "there is no CUDA device " + std::to_string(device);
    return nullptr;
  }
  cudaDeviceProp properties{};
  if (status == cudaSuccess) {
    status = cudaGetDeviceProperties(&properties, device);
  }
  if (status != cudaSuccess) {
    *error = std::string("no CUDA device can be used: ") +
             cudaGetErrorString(status);
    return nullptr;
  }
  return std::make_unique<CudaCorrector>(
      device, DeviceInfo{device, properties.name, properties.totalGlobalMem});
}

}  // namespace counterweight::kernels
