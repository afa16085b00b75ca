// Device memory of other processes. Errors are sentences.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_IPC_MEMORY_H_
#define COUNTERWEIGHT_KERNELS_CUDA_IPC_MEMORY_H_

#include <cstdint>
#include <string>

#include "kernels/corrector.h"

namespace counterweight::kernels {

// See Corrector::OpenDeviceMemory. REQUIRES: `device` is current.
void* OpenIpcMemory(const IpcHandle& handle, int device, int64_t* bytes,
                    std::string* error);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_IPC_MEMORY_H_
