// Leaves a thread's current device as it was: a trainer calls from its own
// threads.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_CALLERS_DEVICE_H_
#define COUNTERWEIGHT_KERNELS_CUDA_CALLERS_DEVICE_H_

#include <cuda_runtime_api.h>

namespace counterweight::kernels {

class CallersDevice {
 public:
  CallersDevice() : known_(cudaGetDevice(&before_) == cudaSuccess) {}
  ~CallersDevice() {
    int now = 0;
    // Choosing a device makes its context, so it is not chosen anew.
    if (known_ && cudaGetDevice(&now) == cudaSuccess && now != before_) {
      cudaSetDevice(before_);
    }
  }
  CallersDevice(const CallersDevice&) = delete;
  CallersDevice& operator=(const CallersDevice&) = delete;

 private:
  int before_ = 0;
  const bool known_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_CALLERS_DEVICE_H_
