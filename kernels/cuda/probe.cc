#include "kernels/cuda/probe.h"

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cuda/cuda_try.h"

namespace counterweight::kernels {
namespace {

// Work of a stream of its own: allocates, writes, frees, waits.
cudaError_t WorkIn(cudaStream_t stream, cudaEvent_t ended) {
  constexpr size_t kBytes = 256;
  void* memory = nullptr;
  COUNTERWEIGHT_CUDA_TRY(cudaMallocAsync(&memory, kBytes, stream));
  cudaError_t error = cudaMemsetAsync(memory, 0, kBytes, stream);
  cudaFreeAsync(memory, stream);
  if (error == cudaSuccess) error = cudaEventRecord(ended, stream);
  if (error == cudaSuccess) error = cudaEventSynchronize(ended);
  return error;
}

cudaError_t WorkIn(cudaStream_t stream) {
  cudaEvent_t ended = nullptr;
  COUNTERWEIGHT_CUDA_TRY(cudaEventCreateWithFlags(
      &ended, cudaEventDisableTiming | cudaEventBlockingSync));
  const cudaError_t error = WorkIn(stream, ended);
  cudaEventDestroy(ended);
  return error;
}

cudaError_t Probe(int device) {
  COUNTERWEIGHT_CUDA_TRY(cudaSetDevice(device));
  cudaStream_t stream = nullptr;
  COUNTERWEIGHT_CUDA_TRY(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const cudaError_t error = WorkIn(stream);
  cudaStreamDestroy(stream);
  return error;
}

}  // namespace

bool IsDeviceAlive(int device) {
  const cudaError_t error = Probe(device);
  cudaGetLastError();  // clears the sticky error
  // A full device answers.
  return error == cudaSuccess || error == cudaErrorMemoryAllocation;
}

}  // namespace counterweight::kernels
