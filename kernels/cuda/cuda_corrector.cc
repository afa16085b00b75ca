// The CUDA backend: uploads a batch, walks it, downloads the answer.
// Overlapping the three is a later concern; here results must be right.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "kernels/corrector.h"
#include "kernels/cuda/batch_on_device.h"
#include "kernels/float_modes.h"
#include "kernels/walk/batch_sums.h"
#include "kernels/walk/loss_batch.h"
#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
namespace {

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

  // Pinned: transfers from and to other memory go through a buffer of the
  // driver's.
  void* AllocateHost(size_t bytes) override {
    void* memory = nullptr;
    if (cudaSetDevice(device_) != cudaSuccess ||
        cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) != cudaSuccess) {
      cudaGetLastError();  // it is no error of whoever asks next
      return nullptr;
    }
    return memory;
  }

  void FreeHost(void* memory) override { cudaFreeHost(memory); }

 private:
  cudaError_t Run(const Plan& plan, const Batch& batch, const Outputs& outputs,
                  CorrectResult* result) {
    LossBatch loss;
    if (batch.num_sequences == 0) {
      if (plan.loss.active) PrepareLoss(plan, batch, nullptr, &loss);
      RowRecord nothing{};
      clear(plan, nothing);
      *result = MakeResult(plan, batch, nothing);
      result->sums.loss.count = loss.count;
      return cudaSuccess;
    }
    COUNTERWEIGHT_CUDA_TRY(cudaSetDevice(device_));
    Stream stream;
    COUNTERWEIGHT_CUDA_TRY(stream.Create());
    BatchOnDevice on_device(plan, batch, stream.get());
    COUNTERWEIGHT_CUDA_TRY(on_device.Upload(outputs));
    Stopwatch stopwatch;
    COUNTERWEIGHT_CUDA_TRY(stopwatch.Start(stream.get()));
    if (plan.loss.active && !PrepareLoss(plan, batch, &on_device, &loss)) {
      return on_device.error();
    }
    RowRecord total;
    COUNTERWEIGHT_CUDA_TRY(on_device.Walk(loss.context, &total));
    COUNTERWEIGHT_CUDA_TRY(stopwatch.Stop(stream.get()));
    COUNTERWEIGHT_CUDA_TRY(cudaStreamSynchronize(stream.get()));
    *result = MakeResult(plan, batch, total);
    result->sums.loss.count = loss.count;
    COUNTERWEIGHT_CUDA_TRY(stopwatch.Seconds(&result->device_seconds));
    if (result->status != CorrectStatus::kOk) return cudaSuccess;
    return on_device.Download(outputs, result->sums.weight.normalizer);
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
