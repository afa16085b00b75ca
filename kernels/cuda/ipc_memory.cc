#include "kernels/cuda/ipc_memory.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "kernels/cuda/cuda_try.h"
#include "kernels/cuda/driver_function.h"

namespace counterweight::kernels {
namespace {

struct Range {
  unsigned long long begin = 0;
  size_t size = 0;
};

// The driver's view of the allocation around `address`. cuMemGetAddressRange is
// not documented for memory that was opened by a handle, so a second function
// is the fallback.
cudaError_t FindRange(unsigned long long address, Range* range) {
  int (*address_range)(unsigned long long*, size_t*, unsigned long long) =
      nullptr;
  COUNTERWEIGHT_CUDA_TRY(FindInDriver("cuMemGetAddressRange", &address_range));
  if (address_range(&range->begin, &range->size, address) == 0) {
    return cudaSuccess;
  }
  constexpr int kRangeStart = 11;  // CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
  constexpr int kRangeSize = 12;   // CU_POINTER_ATTRIBUTE_RANGE_SIZE
  int (*attribute)(void*, int, unsigned long long) = nullptr;
  COUNTERWEIGHT_CUDA_TRY(FindInDriver("cuPointerGetAttribute", &attribute));
  const bool is_known = attribute(&range->begin, kRangeStart, address) == 0 &&
                        attribute(&range->size, kRangeSize, address) == 0;
  return is_known ? cudaSuccess : cudaErrorInvalidValue;
}

// Finds the size of the allocation that begins at `memory`, or an error
// sentence. A client's word for it would let it read what it does not own.
bool FindSize(const void* memory, int64_t* bytes, std::string* error) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  Range range;
  const cudaError_t status = FindRange(address, &range);
  if (status != cudaSuccess) {
    *error = std::string("the size of the memory cannot be found: ") +
             cudaGetErrorString(status);
    return false;
  }
  if (range.begin != address) {
    *error =
        "the memory is a part of a larger block, which its handle would open "
        "as a whole; allocations of 2 MiB and more have blocks of their own";
    return false;
  }
  *bytes = static_cast<int64_t>(range.size);
  return true;
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
  if (status != cudaSuccess) {
    *error = std::string("the device of the memory cannot be found: ") +
             cudaGetErrorString(status);
  } else if (!is_own) {
    *error = "the memory lies on another device than its uuid says";
  } else if (FindSize(memory, bytes, error)) {
    return memory;
  }
  cudaIpcCloseMemHandle(memory);
  cudaGetLastError();
  return nullptr;
}

}  // namespace counterweight::kernels
