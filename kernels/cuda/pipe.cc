#include "kernels/cuda/pipe.h"

#include "kernels/cuda/cuda_try.h"
#include "kernels/cuda/wait.h"

namespace counterweight::kernels {

Pipe::~Pipe() {
  for (const Slot& slot : slots) {
    for (cudaEvent_t event :
         {slot.uploaded, slot.begun, slot.computed, slot.done}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  for (cudaEvent_t event : {entered, left, ended}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  for (cudaStream_t stream : {upload, compute, download}) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

cudaError_t Pipe::Create() {
  for (cudaStream_t* stream : {&upload, &compute, &download}) {
    COUNTERWEIGHT_CUDA_TRY(
        cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  }
  // Waiting threads sleep: a wait of milliseconds does not justify spinning.
  constexpr unsigned kUntimed = cudaEventDisableTiming | cudaEventBlockingSync;
  for (Slot& slot : slots) {
    COUNTERWEIGHT_CUDA_TRY(cudaEventCreateWithFlags(&slot.uploaded, kUntimed));
    COUNTERWEIGHT_CUDA_TRY(
        cudaEventCreateWithFlags(&slot.begun, cudaEventBlockingSync));
    COUNTERWEIGHT_CUDA_TRY(
        cudaEventCreateWithFlags(&slot.computed, cudaEventBlockingSync));
    COUNTERWEIGHT_CUDA_TRY(cudaEventCreateWithFlags(&slot.done, kUntimed));
  }
  COUNTERWEIGHT_CUDA_TRY(cudaEventCreateWithFlags(&entered, kUntimed));
  COUNTERWEIGHT_CUDA_TRY(cudaEventCreateWithFlags(&left, kUntimed));
  return cudaEventCreateWithFlags(&ended, kUntimed);
}

cudaError_t Pipe::Wait(cudaStream_t stream) {
  if (stream == nullptr) return cudaSuccess;
  cudaError_t error = cudaStreamQuery(stream);
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // clears the sticky error
    error = cudaEventRecord(ended, stream);
    if (error == cudaSuccess) error = WaitFor(ended);
  }
  // Spinning does not matter after an error.
  return error == cudaSuccess ? error : cudaStreamSynchronize(stream);
}

void Pipe::Forget() {
  to_device.Forget();
  from_device.Forget();
}

bool Pipe::Quiesce() {
  bool quiet = true;
  for (cudaStream_t stream : {upload, compute, download}) {
    if (Wait(stream) != cudaSuccess) quiet = false;
  }
  quiet = quiet || cudaDeviceSynchronize() == cudaSuccess;
  cudaGetLastError();  // clears the sticky error
  if (quiet) Forget();
  return quiet;
}

}  // namespace counterweight::kernels
