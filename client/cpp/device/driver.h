// The CUDA driver, found when the program runs: the library needs no CUDA to
// be built or installed.
#ifndef COUNTERWEIGHT_CLIENT_CPP_DEVICE_DRIVER_H_
#define COUNTERWEIGHT_CLIENT_CPP_DEVICE_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "client/cpp/device/allocation.h"
#include "client/cpp/status.h"

namespace counterweight::client {

// Thread-safe, and independent of the calling thread's context.
class CudaDriver {
 public:
  // The driver of this process, loaded once. kFailedPrecondition if there is
  // none.
  static Status Get(CudaDriver** driver);

  // The index of the device with the memory at `data`. kInvalidArgument if it
  // is other memory.
  Status DeviceOf(const void* data, int* device);
  // The allocation around memory of `device`. kFailedPrecondition if the driver
  // gives no handle for it: memory of cudaMallocAsync, of virtual address
  // ranges, or managed.
  Status Export(int device, const void* data, DeviceAllocation* allocation);
  // Waits for the work in a stream (CUstream, cudaStream_t).
  Status Synchronize(int device, void* stream);
  // Copies, and waits until the bytes have arrived.
  Status CopyToHost(int device, const void* from, size_t bytes, void* to);
  Status CopyToDevice(int device, const void* from, size_t bytes, void* to);

 private:
  // A device's primary context, which the runtime uses too.
  struct Primary {
    void* context = nullptr;
    DeviceUuid uuid{};
  };
  class Current;

  CudaDriver() = default;
  // Opens the library and finds its functions.
  Status Load();
  Status FindPrimary(int device, Primary* primary);

  // The driver's functions, by their names; all return a CUresult.
  struct Functions {
    int (*cuDeviceGet)(int* device, int ordinal);
    int (*cuDeviceGetUuid_v2)(char* uuid, int device);
    int (*cuDevicePrimaryCtxRetain)(void** context, int device);
    int (*cuCtxPushCurrent_v2)(void* context);
    int (*cuCtxPopCurrent_v2)(void** context);
    int (*cuPointerGetAttribute)(void* value, int attribute, uint64_t pointer);
    int (*cuMemGetAddressRange_v2)(uint64_t* base, size_t* size,
                                   uint64_t pointer);
    int (*cuIpcGetMemHandle)(char* handle, uint64_t pointer);
    int (*cuStreamSynchronize)(void* stream);
    int (*cuMemcpyDtoH_v2)(void* to, uint64_t from, size_t bytes);
    int (*cuMemcpyHtoD_v2)(uint64_t to, const void* from, size_t bytes);
  };
  Functions call_{};
  std::mutex mutex_;
  // Guarded by mutex_. By the driver's index; kept as long as the process.
  std::map<int, Primary> primaries_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_DEVICE_DRIVER_H_
