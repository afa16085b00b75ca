// Distinguishes an error of one request from a lost device.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_PROBE_H_
#define COUNTERWEIGHT_KERNELS_CUDA_PROBE_H_

namespace counterweight::kernels {

// Gives the device a little work. After an error that CUDA does not recover
// from, such as an illegal address, every call of the process fails, and so
// does this; after any other error the device works on.
bool IsDeviceAlive(int device);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_PROBE_H_
