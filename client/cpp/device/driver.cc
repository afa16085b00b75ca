#include "client/cpp/device/driver.h"

#include <dlfcn.h>

#include <type_traits>

namespace counterweight::client {
namespace {

// Its name and functions are the same in all versions of CUDA, while a runtime
// may have any name, or be linked into the program.
constexpr char kLibrary[] = "libcuda.so.1";
constexpr int kSuccess = 0;
// CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL and
// CU_MEMORYTYPE_DEVICE of the driver's interface.
constexpr int kMemoryType = 2;
constexpr int kDeviceOrdinal = 9;
constexpr unsigned kDeviceMemory = 2;

uint64_t Address(const void* data) { return reinterpret_cast<uint64_t>(data); }

Status Check(StatusCode code, const char* function, int result) {
  if (result == kSuccess) return {};
  return {.code = code,
          .message = std::string(function) + " failed with CUresult " +
                     std::to_string(result)};
}

}  // namespace

// A name of the driver's, for the call and for its error.
#define CW_DRIVER(code, function, ...) \
  Check(StatusCode::code, #function, call_.function(__VA_ARGS__))

Status CudaDriver::Get(CudaDriver** driver) {
  // Never destroyed: holds of static duration may outlive static objects.
  static auto* const instance = new CudaDriver;
  static const Status loaded = instance->Load();
  *driver = instance;
  return loaded;
}

Status CudaDriver::Load() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return {.code = StatusCode::kFailedPrecondition,
            .message = std::string("no CUDA driver: ") + dlerror()};
  }
  const auto find = [library](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(
        dlsym(library, name));
    return *function != nullptr
               ? Status()
               : Status{.code = StatusCode::kFailedPrecondition,
                        .message = std::string(kLibrary) + " has no " + name};
  };
  Status status = find("cuDeviceGet", &call_.cuDeviceGet);
#define CW_FIND(function) \
  if (status.ok()) status = find(#function, &call_.function)
  CW_FIND(cuDeviceGetUuid_v2);
  CW_FIND(cuDevicePrimaryCtxRetain);
  CW_FIND(cuCtxPushCurrent_v2);
  CW_FIND(cuCtxPopCurrent_v2);
  CW_FIND(cuPointerGetAttribute);
  CW_FIND(cuMemGetAddressRange_v2);
  CW_FIND(cuIpcGetMemHandle);
  CW_FIND(cuStreamSynchronize);
  CW_FIND(cuMemcpyDtoH_v2);
  CW_FIND(cuMemcpyHtoD_v2);
#undef CW_FIND
  return status;
}

Status CudaDriver::FindPrimary(int device, Primary* primary) {
  const std::lock_guard lock(mutex_);
  const auto known = primaries_.find(device);
  if (known != primaries_.end()) {
    *primary = known->second;
    return {};
  }
  int handle = 0;
  Status status = CW_DRIVER(kInternal, cuDeviceGet, &handle, device);
  if (status.ok()) {
    status =
        CW_DRIVER(kInternal, cuDeviceGetUuid_v2, primary->uuid.data(), handle);
  }
  if (status.ok()) {
    status = CW_DRIVER(kInternal, cuDevicePrimaryCtxRetain, &primary->context,
                       handle);
  }
  if (status.ok()) primaries_[device] = *primary;
  return status;
}

// Makes a device's context the thread's current one while it lives: a thread
// has none before it calls the runtime, or another device's.
class CudaDriver::Current {
 public:
  Current(CudaDriver* driver, int device) : driver_(*driver) {
    status_ = driver_.FindPrimary(device, &primary_);
    if (!status_.ok()) return;
    const int result = driver_.call_.cuCtxPushCurrent_v2(primary_.context);
    status_ = Check(StatusCode::kInternal, "cuCtxPushCurrent_v2", result);
    pushed_ = status_.ok();
  }
  ~Current() {
    void* popped = nullptr;
    if (pushed_) driver_.call_.cuCtxPopCurrent_v2(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  const Status& status() const { return status_; }
  const DeviceUuid& uuid() const { return primary_.uuid; }

 private:
  CudaDriver& driver_;
  Primary primary_;
  Status status_;
  bool pushed_ = false;
};

Status CudaDriver::DeviceOf(const void* data, int* device) {
  unsigned type = 0;
  Status status = CW_DRIVER(kInvalidArgument, cuPointerGetAttribute, &type,
                            kMemoryType, Address(data));
  if (status.ok() && type != kDeviceMemory) {
    status = {.code = StatusCode::kInvalidArgument,
              .message = "it is the host's"};
  }
  if (!status.ok()) return status;
  return CW_DRIVER(kInvalidArgument, cuPointerGetAttribute, device,
                   kDeviceOrdinal, Address(data));
}

Status CudaDriver::Export(int device, const void* data,
                          DeviceAllocation* allocation) {
  const Current current(this, device);
  if (!current.status().ok()) return current.status();
  size_t size = 0;
  Status status = CW_DRIVER(kFailedPrecondition, cuMemGetAddressRange_v2,
                            &allocation->address, &size, Address(data));
  allocation->size = size;
  allocation->device = current.uuid();
  if (!status.ok()) return status;
  return CW_DRIVER(kFailedPrecondition, cuIpcGetMemHandle,
                   allocation->handle.data(), allocation->address);
}

Status CudaDriver::Synchronize(int device, void* stream) {
  const Current current(this, device);
  if (!current.status().ok()) return current.status();
  return CW_DRIVER(kInternal, cuStreamSynchronize, stream);
}

Status CudaDriver::CopyToHost(int device, const void* from, size_t bytes,
                              void* to) {
  const Current current(this, device);
  if (!current.status().ok()) return current.status();
  return CW_DRIVER(kInternal, cuMemcpyDtoH_v2, to, Address(from), bytes);
}

Status CudaDriver::CopyToDevice(int device, const void* from, size_t bytes,
                                void* to) {
  const Current current(this, device);
  if (!current.status().ok()) return current.status();
  Status status =
      CW_DRIVER(kInternal, cuMemcpyHtoD_v2, Address(to), from, bytes);
  // The driver returns when it has read pageable memory, which may be before
  // the bytes have arrived.
  if (status.ok()) status = CW_DRIVER(kInternal, cuStreamSynchronize, nullptr);
  return status;
}

#undef CW_DRIVER

}  // namespace counterweight::client
