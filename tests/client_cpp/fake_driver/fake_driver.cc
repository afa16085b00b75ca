// libcuda.so.1 for tests: the driver's functions that client/cpp/device calls,
// on the fake runtime of tests/kernels/cuda_on_cpu. Names, signatures and
// numbers are the driver's.
//
// Environment, read at each call: COUNTERWEIGHT_FAKE_DRIVER_HANDLES=damaged
// makes handles that no process can open.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int kInvalidValue = 1;
constexpr int kInvalidContext = 201;
constexpr int kMemoryType = 2;
constexpr int kDeviceOrdinal = 9;

// Contexts are devices, numbered from 1.
std::vector<intptr_t>& Stack() {
  thread_local std::vector<intptr_t> stack;
  return stack;
}

// A thread without a context may not use memory or streams.
template <typename Function>
int InContext(const Function& function) {
  if (Stack().empty()) return kInvalidContext;
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(static_cast<int>(Stack().back()) - 1);
  const int result = function();
  cudaSetDevice(before);
  return result;
}

}  // namespace

extern "C" {

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetUuid_v2(char* uuid, int device) {
  cudaDeviceProp properties{};
  const int result = cudaGetDeviceProperties(&properties, device);
  std::memcpy(uuid, properties.uuid.bytes, sizeof(properties.uuid.bytes));
  return result;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(intptr_t{device} + 1);
  return 0;
}

int cuCtxPushCurrent_v2(void* context) {
  Stack().push_back(reinterpret_cast<intptr_t>(context));
  return 0;
}

int cuCtxPopCurrent_v2(void** context) {
  if (Stack().empty()) return kInvalidContext;
  *context = reinterpret_cast<void*>(Stack().back());
  Stack().pop_back();
  return 0;
}

int cuPointerGetAttribute(void* value, int attribute, uint64_t pointer) {
  cudaPointerAttributes attributes{};
  const int result = cudaPointerGetAttributes(
      &attributes, reinterpret_cast<const void*>(pointer));
  if (result != 0) return result;
  if (attributes.type == cudaMemoryTypeUnregistered) return kInvalidValue;
  if (attribute == kMemoryType) {
    *static_cast<unsigned*>(value) = attributes.type;
  } else if (attribute == kDeviceOrdinal) {
    *static_cast<int*>(value) = attributes.device;
  } else {
    return kInvalidValue;
  }
  return 0;
}

int cuMemGetAddressRange_v2(uint64_t* base, size_t* size, uint64_t pointer) {
  return InContext([&]() -> int {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const int result = cudaGetDriverEntryPointByVersion(
        "cuMemGetAddressRange", &function, 13000, cudaEnableDefault, &found);
    if (result != 0) return result;
    using Range = int (*)(uint64_t*, size_t*, uint64_t);
    return reinterpret_cast<Range>(function)(base, size, pointer);
  });
}

int cuIpcGetMemHandle(char* handle, uint64_t pointer) {
  return InContext([&]() -> int {
    cudaIpcMemHandle_t made{};
    const int result =
        cudaIpcGetMemHandle(&made, reinterpret_cast<void*>(pointer));
    const char* const wish = std::getenv("COUNTERWEIGHT_FAKE_DRIVER_HANDLES");
    if (wish != nullptr && std::strcmp(wish, "damaged") == 0) {
      made.reserved[0] ^= 1;
    }
    std::memcpy(handle, made.reserved, sizeof(made.reserved));
    return result;
  });
}

// The default stream has no queue in the fake runtime.
int cuStreamSynchronize(cudaStream_t stream) {
  return InContext([&]() -> int {
    return stream == nullptr ? 0 : cudaStreamSynchronize(stream);
  });
}

int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  return InContext([&]() -> int {
    return cudaMemcpy(to, reinterpret_cast<const void*>(from), bytes,
                      cudaMemcpyDeviceToHost);
  });
}

int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  return InContext([&]() -> int {
    return cudaMemcpy(reinterpret_cast<void*>(to), from, bytes,
                      cudaMemcpyHostToDevice);
  });
}

}  // extern "C"
