// The part of the CUDA runtime that kernels/cuda uses, with this process as the
// device: memory is memory, streams are in order because everything happens at
// once. Found instead of the real header by tests that run the CUDA backend on
// a CPU.
#ifndef COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_CUDA_RUNTIME_API_H_
#define COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_CUDA_RUNTIME_API_H_

#include <cstdlib>
#include <cstring>

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum { cudaStreamNonBlocking };
using cudaStream_t = struct Stream*;
using cudaEvent_t = struct Event*;

struct cudaDeviceProp {
  char name[32];
  size_t totalGlobalMem;
};

inline const char* cudaGetErrorString(cudaError_t) { return "out of memory"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "this CPU");
  properties->totalGlobalMem = 0;
  return cudaSuccess;
}

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, int) {
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

inline cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t,
                                        cudaEvent_t) {
  *milliseconds = 0.0f;
  return cudaSuccess;
}

// Fresh device memory holds anything: fill it with what no test expects.
inline cudaError_t cudaMallocAsync(void** memory, size_t size, cudaStream_t) {
  *memory = std::malloc(size);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, 0xa5, size);
  return cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  std::free(memory);
  return cudaSuccess;
}
inline constexpr unsigned cudaHostAllocPortable = 1;

inline cudaError_t cudaHostAlloc(void** memory, size_t size, unsigned) {
  *memory = std::malloc(size);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

inline cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size,
                                   cudaMemcpyKind, cudaStream_t) {
  std::memcpy(to, from, size);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t size,
                                   cudaStream_t) {
  std::memset(memory, value, size);
  return cudaSuccess;
}

#endif  // COUNTERWEIGHT_TESTS_KERNELS_CUDA_ON_CPU_CUDA_RUNTIME_API_H_
