// The streams of one run, its events and its pinned buffers.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_PIPE_H_
#define COUNTERWEIGHT_KERNELS_CUDA_PIPE_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/bounce_ring.h"

namespace counterweight::kernels {

// Blocks of a run between the start of their upload and the end of their
// download: one in each stream.
inline constexpr int kBlocksInFlight = 3;

// Created once and used by many runs, one after the other.
class Pipe {
 public:
  struct Slot {
    cudaEvent_t uploaded = nullptr;
    cudaEvent_t begun = nullptr;     // timed
    cudaEvent_t computed = nullptr;  // timed
    cudaEvent_t done = nullptr;
  };

  explicit Pipe(int64_t bounce_bytes)
      : to_device(bounce_bytes), from_device(bounce_bytes) {}
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  // REQUIRES: the device is current. The pipe is unusable after an error.
  cudaError_t Create();

  // Waits until the stream, which may be null, is empty; the thread sleeps.
  cudaError_t Wait(cudaStream_t stream);

  // Waits until nothing is in flight, after an error too: no transfer touches
  // the caller's memory any more. Returns false if the device fails every call;
  // its driver has ended what was in flight.
  bool Quiesce();

  // Forgets what the rings hold. REQUIRES: their transfers are over.
  void Forget();

  cudaStream_t upload = nullptr;
  cudaStream_t compute = nullptr;
  cudaStream_t download = nullptr;
  Slot slots[kBlocksInFlight];
  // Order a run behind the caller's stream, and that behind the run.
  cudaEvent_t entered = nullptr;
  cudaEvent_t left = nullptr;
  cudaEvent_t ended = nullptr;  // of Wait
  BounceRing to_device;
  BounceRing from_device;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_PIPE_H_
