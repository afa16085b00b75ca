#include "kernels/cuda/ipc_memory.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "kernels/cuda/cuda_try.h"

namespace counterweight::kernels {
namespace {

// The runtime has no such function, and to link the driver's would keep the
// program from starting on machines without one.
using AddressRange = int (*)(unsigned long long* base, size_t* size,
                             unsigned long long address);

cudaError_t FindAddressRange(AddressRange* function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr char kName[] = "cuMemGetAddressRange";
#if CUDART_VERSION >= 12050
  constexpr unsigned kVersion = 12000;
  COUNTERWEIGHT_CUDA_TRY(cudaGetDriverEntryPointByVersion(
      kName, &found, kVersion, cudaEnableDefault, &result));
#else
  COUNTERWEIGHT_CUDA_TRY(
      cudaGetDriverEntryPoint(kName, &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    return cudaErrorSymbolNotFound;
  }
  *function = reinterpret_cast<AddressRange>(found);
  return cudaSuccess;
}

// The size of the allocation that begins at `memory`.
cudaError_t FindSize(const void* memory, int64_t* bytes) {
  AddressRange range = nullptr;
  COUNTERWEIGHT_CUDA_TRY(FindAddressRange(&range));
  const auto address = reinterpret_cast<uintptr_t>(memory);
  unsigned long long base = 0;
  size_t size = 0;
  if (range(&base, &size, address) != 0 || base != address) {
    return cudaErrorInvalidValue;
  }
  *bytes = static_cast<int64_t>(size);
  return cudaSuccess;
}

// Whether the memory is that of `device`, not of another one that it reaches.
cudaError_t FindOwner(const void* memory, int device, bool* is_own) {
  cudaPointerAttributes attributes{};
  COUNTERWEIGHT_CUDA_TRY(cudaPointerGetAttributes(&attributes, memory));
  *is_own =
      attributes.type == cudaMemoryTypeDevice && attributes.device == device;
  return cudaSuccess;
}

}  // namespace

void* OpenIpcMemory(const IpcHandle& handle, int device, int64_t* bytes,
                    std::string* error) {
  cudaIpcMemHandle_t opaque{};
  static_assert(sizeof(opaque) == sizeof(handle));
  std::memcpy(&opaque, handle.data(), sizeof(opaque));
  void* memory = nullptr;
  cudaError_t status =
      cudaIpcOpenMemHandle(&memory, opaque, cudaIpcMemLazyEnablePeerAccess);
  if (status != cudaSuccess) {
    cudaGetLastError();  // clears the sticky error
    *error = std::string("the handle names no memory that can be opened: ") +
             cudaGetErrorString(status);
    return nullptr;
  }
  bool is_own = false;
  status = FindOwner(memory, device, &is_own);
  if (status == cudaSuccess && is_own) status = FindSize(memory, bytes);
  if (status == cudaSuccess && is_own) return memory;
  cudaIpcCloseMemHandle(memory);
  cudaGetLastError();
  *error = status == cudaSuccess
               ? "the memory lies on another device than its uuid says"
               : std::string("the size of the memory cannot be found: ") +
                     cudaGetErrorString(status);
  return nullptr;
}

}  // namespace counterweight::kernels
