// Devices, errors and IPC of the fake runtime, and the tests' interface to it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/kernels/cuda_on_cpu/fake_runtime.h"

namespace counterweight::fake_cuda {
namespace {

struct ErrorWords {
  cudaError_t error;
  const char* name;
  const char* sentence;
};

constexpr ErrorWords kErrorWords[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError",
     "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorNoDevice, "cudaErrorNoDevice",
     "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice",
     "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized",
     "invalid device context"},
    {cudaErrorMapBufferObjectFailed, "cudaErrorMapBufferObjectFailed",
     "mapping of buffer object failed"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable",
     "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound",
     "named symbol not found"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure",
     "unspecified launch failure"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorWords& WordsFor(cudaError_t error) {
  for (const ErrorWords& words : kErrorWords) {
    if (words.error == error) return words;
  }
  static constexpr ErrorWords kNone = {
      cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
  return kNone;
}

}  // namespace

void SetSeed(uint64_t seed) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.SetSeed(seed);
}

void ForgetErrors() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  if (runtime.sticky != cudaSuccess) runtime.Revive();
  runtime.planned.clear();
  runtime.calls.clear();
  runtime.operations_run = 0;
  runtime.failing_operation = 0;
  runtime.memory.peak = 0;
  LastError() = cudaSuccess;
}

void FailCall(const std::string& api, int64_t n, cudaError_t error,
              bool sticky) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.planned.push_back({api, n, error, sticky});
}

void FailOperation(int64_t n, cudaError_t error) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.failing_operation = runtime.operations_run + n;
  runtime.operation_error = error;
}

std::map<std::string, int64_t> Calls() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.calls;
}

int64_t OperationsRun() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.operations_run;
}

Census Alive() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  Census census;
  for (const auto& [address, allocation] : runtime.memory.allocations()) {
    switch (allocation.kind) {
      case MemoryKind::kPooled:
      case MemoryKind::kShared:
        ++census.device_allocations;
        census.device_bytes += static_cast<int64_t>(allocation.size);
        break;
      case MemoryKind::kOpened:
        ++census.ipc_mappings;
        break;
      case MemoryKind::kReserved:
        ++census.reserved_ranges;
        break;
      case MemoryKind::kPinned:
        ++census.pinned_allocations;
        break;
      case MemoryKind::kRegistered:
        ++census.registered_ranges;
        break;
    }
  }
  census.imported_handles = static_cast<int64_t>(runtime.memory.num_handles());
  for (const auto& pool : runtime.pools) census.pools += pool->alive;
  for (const auto& stream : runtime.streams) {
    const auto of_device = runtime.default_streams.find(stream->device);
    const bool is_default = of_device != runtime.default_streams.end() &&
                            of_device->second == stream.get();
    census.streams += stream->alive && !is_default ? 1 : 0;
    census.queued_operations += static_cast<int64_t>(stream->queue.size());
  }
  for (const auto& event : runtime.events) {
    census.events += event->alive ? 1 : 0;
  }
  return census;
}

void SetSharedMemory(int bytes) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.shared_limit = bytes;
  runtime.granted_shared.clear();
}

void SetOpenedRange(OpenedRange range) {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.opened_range = range;
}

int64_t PeakDeviceBytes() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.memory.peak;
}

void StartTrace() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.trace.emplace();
}

std::vector<TracedOperation> StopTrace() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  std::vector<TracedOperation> trace;
  if (runtime.trace) trace.swap(*runtime.trace);
  runtime.trace.reset();
  return trace;
}

}  // namespace counterweight::fake_cuda

using namespace counterweight::fake_cuda;  // NOLINT: the names of one file

extern "C" {

const char* cudaGetErrorName(cudaError_t error) { return WordsFor(error).name; }

const char* cudaGetErrorString(cudaError_t error) {
  return WordsFor(error).sentence;
}

cudaError_t cudaPeekAtLastError() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  return runtime.sticky != cudaSuccess ? runtime.sticky : LastError();
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  LastError() = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaGetDeviceCount", true, [&] {
    // For tests from Python: as if the driver were older than this runtime.
    if (std::getenv("COUNTERWEIGHT_FAKE_CUDA_OLD_DRIVER") != nullptr) {
      return static_cast<cudaError_t>(35);
    }
    *count = runtime.num_devices();
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaSetDevice", true, [&] {
    if (device < 0 || device >= runtime.num_devices()) {
      return cudaErrorInvalidDevice;
    }
    CurrentDevice() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaGetDeviceProperties", true, [&] {
    if (device < 0 || device >= runtime.num_devices()) {
      return cudaErrorInvalidDevice;
    }
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "this CPU");
    std::memcpy(properties->uuid.bytes, "fake cuda device", 16);
    properties->uuid.bytes[15] = static_cast<char>(device);
    properties->totalGlobalMem = runtime.memory.bytes_each();
    properties->major = 9;
    properties->multiProcessorCount = 4;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMemGetInfo", true, [&] {
    *total = runtime.memory.bytes_each();
    *free = *total - runtime.memory.used(CurrentDevice());
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                  const void* /*function*/) {
  return Runtime::Get().Call("cudaFuncGetAttributes", true, [&] {
    *attributes = {0, 1024};
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute,
                                 int value) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaFuncSetAttribute", true, [&] {
    if (value < 0 || value > runtime.shared_limit) return cudaErrorInvalidValue;
    runtime.granted_shared[{CurrentDevice(), function}] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaDeviceGetAttribute", true, [&] {
    if (device < 0 || device >= runtime.num_devices()) {
      return cudaErrorInvalidDevice;
    }
    *value = runtime.shared_limit;
    return cudaSuccess;
  });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaIpcGetMemHandle", true,
                      [&] { return runtime.memory.Export(memory, handle); });
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle,
                                 unsigned flags) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaIpcOpenMemHandle", true, [&] {
    if (flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
    return runtime.memory.Open(handle, CurrentDevice(), memory);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaIpcCloseMemHandle", false, [&] {
    const cudaError_t error = runtime.RunAll();
    return error == cudaSuccess ? runtime.memory.Close(memory, CurrentDevice())
                                : error;
  });
}

}  // extern "C"
