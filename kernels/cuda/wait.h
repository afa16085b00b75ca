// Waits for events.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_WAIT_H_
#define COUNTERWEIGHT_KERNELS_CUDA_WAIT_H_

#include <cuda_runtime_api.h>

namespace counterweight::kernels {

// Returns when the event has happened, or with its stream's error. The thread
// stays awake for the time of a micro-batch, because going to sleep and waking
// takes as long again, and then sleeps.
cudaError_t WaitFor(cudaEvent_t event);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_WAIT_H_
