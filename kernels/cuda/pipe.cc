#include "kernels/cuda/pipe.h"

#include "kernels/cuda/cuda_try.h"

namespace counterweight::kernels {

Pipe::~Pipe() {
  for (const Slot& slot : slots) {
    for (cudaEvent_t event :
         {slot.uploaded, slot.begun, slot.computed, slot.done}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
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
  // Threads that wait sleep: a request's milliseconds are no reason to spin.
  constexpr unsigned kUntimed = cudaEventDisableTiming | cudaEventBlockingSync;
  for (Slot& slot : slots) {
    COUNTERWEIGHT_CUDA_TRY(cudaEventCreateWithFlags(&slot.uploaded, kUntimed));
    COUNTERWEIGHT_CUDA_TRY(
        cudaEventCreateWithFlags(&slot.begun, cudaEventBlockingSync));
    COUNTERWEIGHT_CUDA_TRY(
        cudaEventCreateWithFlags(&slot.computed, cudaEventBlockingSync));
    COUNTERWEIGHT_CUDA_TRY(cudaEventCreateWithFlags(&slot.done, kUntimed));
  }
  return cudaSuccess;
}

bool Pipe::Quiesce() {
  bool quiet = true;
  for (cudaStream_t stream : {upload, compute, download}) {
    if (stream != nullptr && cudaStreamSynchronize(stream) != cudaSuccess) {
      quiet = false;
    }
  }
  quiet = quiet || cudaDeviceSynchronize() == cudaSuccess;
  cudaGetLastError();  // it is no error of whoever asks next
  if (quiet) {
    to_device.Forget();
    from_device.Forget();
  }
  return quiet;
}

}  // namespace counterweight::kernels
