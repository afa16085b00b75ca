// Memory and copies of the fake runtime.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/kernels/cuda_on_cpu/fake_runtime.h"

namespace counterweight::fake_cuda {
namespace {

bool IsDevice(const Allocation* allocation) {
  return allocation != nullptr && !IsHost(allocation->kind);
}

bool Complain(const char* what) {
  std::fprintf(stderr, "fake cuda: %s\n", what);
  return false;
}

// Returns whether a copy of that kind may access both.
bool MayCopy(const Allocation* to, const Allocation* from,
             cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !IsDevice(to) && !IsDevice(from);
    case cudaMemcpyHostToDevice:
      return IsDevice(to) && !IsDevice(from);
    case cudaMemcpyDeviceToHost:
      return !IsDevice(to) && IsDevice(from);
    case cudaMemcpyDeviceToDevice:
      return IsDevice(to) && IsDevice(from);
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

Traffic TrafficOf(const Allocation* to, const Allocation* from) {
  if (IsDevice(to)) {
    return IsDevice(from) ? Traffic::kOnDevice : Traffic::kToDevice;
  }
  return Traffic::kToHost;
}

// Device memory that an operation has written since it was allocated. What
// still has its first content, for 8 bytes at least, has not.
bool IsWritten(const Allocation* allocation, const void* memory, size_t size) {
  if (allocation->kind != MemoryKind::kPooled) return true;
  constexpr uint64_t kFresh = 0xa5a5a5a5a5a5a5a5u;
  const char* const bytes = static_cast<const char*>(memory);
  for (size_t i = 0; i + sizeof(kFresh) <= size; i += sizeof(kFresh)) {
    if (std::memcmp(bytes + i, &kFresh, sizeof(kFresh)) == 0) return false;
  }
  return true;
}

void Trace(Runtime& runtime, const TracedOperation& operation) {
  if (runtime.trace) runtime.trace->push_back(operation);
}

cudaError_t CopyNow(Runtime& runtime, cudaStream_t stream, void* to,
                    const void* from, size_t size) {
  const Allocation* target = runtime.memory.Find(to, size);
  const Allocation* source = runtime.memory.Find(from, size);
  if (target == nullptr || source == nullptr) {
    Complain("a copy ran on memory that is freed");
    return cudaErrorIllegalAddress;
  }
  const Traffic traffic = TrafficOf(target, source);
  if (traffic == Traffic::kToHost && !IsWritten(source, from, size)) {
    Complain("a copy to the host reads memory that nothing has written");
    return cudaErrorIllegalAddress;
  }
  Trace(runtime, {stream, traffic, size, from});
  std::memcpy(to, from, size);
  return cudaSuccess;
}

}  // namespace

bool IsDeviceMemory(const void* memory, size_t size) {
  return size == 0 || IsDevice(Runtime::Get().memory.Find(memory, size));
}

cudaError_t Launch(const void* kernel, const cudaLaunchConfig_t& config,
                   std::function<bool()> run) {
  constexpr int kSharedWithoutAsking = 48 << 10;
  Runtime& runtime = Runtime::Get();
  return runtime.Call("launch", true, [&] {
    cudaStream_t const stream = config.stream;
    if (!runtime.Owns(stream) || stream->device != CurrentDevice()) {
      return cudaErrorInvalidResourceHandle;
    }
    if (config.gridDim.x == 0 || config.blockDim.x == 0) {
      return cudaErrorInvalidConfiguration;
    }
    const auto granted = runtime.granted_shared.find({stream->device, kernel});
    const int limit = granted == runtime.granted_shared.end()
                          ? kSharedWithoutAsking
                          : granted->second;
    if (config.dynamicSmemBytes > static_cast<size_t>(limit)) {
      Complain("a block takes more shared memory than its kernel was granted");
      return cudaErrorInvalidValue;
    }
    return runtime.Enqueue(
        stream, {nullptr, 0, [&runtime, stream, run = std::move(run)] {
                   Trace(runtime, {stream, Traffic::kKernel, 0, nullptr});
                   if (run()) return cudaSuccess;
                   Complain("a kernel was given memory that it may not touch");
                   return cudaErrorIllegalAddress;
                 }});
  });
}

}  // namespace counterweight::fake_cuda

using namespace counterweight::fake_cuda;  // NOLINT: the names of one file

extern "C" {

cudaError_t cudaMalloc(void** memory, size_t size) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMalloc", true, [&] {
    *memory = runtime.memory.AllocateShared(CurrentDevice(), size);
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFree(void* memory) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaFree", false, [&] {
    if (memory == nullptr) return cudaSuccess;
    const Allocation* allocation = runtime.memory.At(memory);
    const bool is_mapped =
        allocation != nullptr && (allocation->kind == MemoryKind::kOpened ||
                                  allocation->kind == MemoryKind::kReserved);
    if (!IsDevice(allocation) || is_mapped) {
      return cudaErrorInvalidValue;
    }
    const cudaError_t error = runtime.RunAll();
    if (error == cudaSuccess) runtime.memory.Free(memory);
    return error;
  });
}

cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaHostAlloc", true, [&] {
    *memory = runtime.memory.AllocatePinned(size);
    return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaFreeHost", false, [&] {
    if (memory == nullptr) return cudaSuccess;
    const Allocation* allocation = runtime.memory.At(memory);
    if (allocation == nullptr || allocation->kind != MemoryKind::kPinned) {
      return cudaErrorInvalidValue;
    }
    runtime.memory.Free(memory);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* memory, size_t size, unsigned) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaHostRegister", true,
                      [&] { return runtime.memory.Register(memory, size); });
}

cudaError_t cudaHostUnregister(void* memory) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaHostUnregister", false,
                      [&] { return runtime.memory.Unregister(memory); });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size,
                       cudaMemcpyKind kind) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMemcpy", true, [&] {
    if (!MayCopy(runtime.memory.Find(to, size), runtime.memory.Find(from, size),
                 kind)) {
      return cudaErrorInvalidValue;
    }
    const DeviceAccess access(&runtime.memory);
    std::memcpy(to, from, size);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMemcpyAsync", true, [&] {
    stream = runtime.Resolve(stream);
    const Allocation* target = runtime.memory.Find(to, size);
    const Allocation* source = runtime.memory.Find(from, size);
    if (target == nullptr || source == nullptr ||
        !MayCopy(target, source, kind)) {
      Complain("an asynchronous copy of memory that is not known, or pageable");
      return cudaErrorInvalidValue;
    }
    return runtime.Enqueue(stream,
                           {nullptr, 0, [&runtime, stream, to, from, size] {
                              return CopyNow(runtime, stream, to, from, size);
                            }});
  });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t size,
                            cudaStream_t stream) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMemsetAsync", true, [&] {
    stream = runtime.Resolve(stream);
    if (!IsDeviceMemory(memory, size)) return cudaErrorInvalidValue;
    return runtime.Enqueue(stream, {nullptr, 0, [memory, value, size] {
                                      if (!IsDeviceMemory(memory, size)) {
                                        return cudaErrorIllegalAddress;
                                      }
                                      std::memset(memory, value, size);
                                      return cudaSuccess;
                                    }});
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes,
                                     const void* memory) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaPointerGetAttributes", true, [&] {
    const Allocation* allocation = runtime.memory.Find(memory, 1);
    *attributes = {};
    attributes->device = -1;
    if (allocation == nullptr) return cudaSuccess;
    const bool is_device = IsDevice(allocation);
    attributes->type = is_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = allocation->device;
    attributes->devicePointer = const_cast<void*>(memory);
    if (!is_device) attributes->hostPointer = const_cast<void*>(memory);
    return cudaSuccess;
  });
}

}  // extern "C"
