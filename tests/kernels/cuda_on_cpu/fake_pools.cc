// Stream-ordered allocation of the fake runtime, and its memory pools.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "tests/kernels/cuda_on_cpu/fake_runtime.h"

namespace counterweight::fake_cuda {
namespace {

cudaError_t Poison(Runtime& runtime, void* memory, size_t size) {
  if (runtime.memory.Find(memory, size) == nullptr) {
    return cudaErrorIllegalAddress;
  }
  std::memset(memory, 0xa5, size);
  return cudaSuccess;
}

bool Exists(const Runtime& runtime, cudaMemPool_t pool) {
  return std::any_of(
      runtime.pools.begin(), runtime.pools.end(),
      [&](const auto& each) { return each.get() == pool && each->alive; });
}

size_t UsedOf(const Runtime& runtime, cudaMemPool_t pool) {
  size_t sum = 0;
  for (const auto& [address, allocation] : runtime.memory.allocations()) {
    if (allocation.pool == pool) sum += allocation.size;
  }
  return sum;
}

// `pool`: null for the device's default one, which keeps nothing.
cudaError_t Allocate(Runtime& runtime, void** memory, size_t size,
                     cudaMemPool_t pool, cudaStream_t stream) {
  if (!runtime.Owns(stream)) return cudaErrorInvalidResourceHandle;
  void* allocated = runtime.memory.AllocatePooled(stream->device, size, pool);
  if (allocated == nullptr) {
    // Queued frees would make room, as in a device's pool.
    const cudaError_t error = runtime.RunAll();
    if (error != cudaSuccess) return error;
    allocated = runtime.memory.AllocatePooled(stream->device, size, pool);
  }
  if (allocated == nullptr) return cudaErrorMemoryAllocation;
  *memory = allocated;
  if (pool != nullptr) {
    pool->reserved = std::max(pool->reserved, UsedOf(runtime, pool));
  }
  return runtime.Enqueue(stream, {nullptr, 0, [&runtime, allocated, size] {
                                    return Poison(runtime, allocated, size);
                                  }});
}

}  // namespace

int64_t ReservedBytes() {
  Runtime& runtime = Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  size_t sum = 0;
  for (const auto& pool : runtime.pools) {
    if (pool->alive) sum += pool->reserved;
  }
  return static_cast<int64_t>(sum);
}

extern "C" {

cudaError_t cudaMallocAsync(void** memory, size_t size, cudaStream_t stream) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMallocAsync", true, [&] {
    return Allocate(runtime, memory, size, nullptr, stream);
  });
}

cudaError_t cudaMallocFromPoolAsync(void** memory, size_t size,
                                    cudaMemPool_t pool, cudaStream_t stream) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMallocFromPoolAsync", true, [&] {
    if (!Exists(runtime, pool) || pool->device != stream->device) {
      return cudaErrorInvalidValue;
    }
    return Allocate(runtime, memory, size, pool, stream);
  });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaFreeAsync", false, [&] {
    Allocation* allocation = runtime.memory.At(memory);
    if (allocation == nullptr || allocation->kind != MemoryKind::kPooled ||
        allocation->freed) {
      return cudaErrorInvalidValue;
    }
    allocation->freed = true;
    return runtime.Enqueue(
        stream, {nullptr, 0, [&runtime, memory, pool = allocation->pool] {
                   runtime.memory.Free(memory);
                   if (pool != nullptr && !pool->keeps) {
                     pool->reserved = UsedOf(runtime, pool);
                   }
                   return cudaSuccess;
                 }});
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool,
                              const cudaMemPoolProps* properties) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMemPoolCreate", true, [&] {
    const int device = properties->location.id;
    if (properties->allocType != cudaMemAllocationTypePinned ||
        properties->location.type != cudaMemLocationTypeDevice || device < 0 ||
        device >= runtime.num_devices()) {
      return cudaErrorInvalidValue;
    }
    runtime.pools.push_back(
        std::make_unique<CUmemPoolHandle_st>(CUmemPoolHandle_st{device}));
    *pool = runtime.pools.back().get();
    return cudaSuccess;
  });
}

// Memory lives on until the queued operations that free it have run.
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMemPoolDestroy", false, [&] {
    if (!Exists(runtime, pool)) return cudaErrorInvalidValue;
    pool->alive = false;
    return cudaSuccess;
  });
}

// Knows one threshold: a pool that has it keeps all that was freed.
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr,
                                    void* value) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMemPoolSetAttribute", true, [&] {
    uint64_t threshold = 0;
    std::memcpy(&threshold, value, sizeof(threshold));
    if (!Exists(runtime, pool) || threshold != UINT64_MAX) {
      return cudaErrorInvalidValue;
    }
    pool->keeps = true;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  Runtime& runtime = Runtime::Get();
  return runtime.Call("cudaMemPoolTrimTo", true, [&] {
    if (!Exists(runtime, pool)) return cudaErrorInvalidValue;
    pool->reserved =
        std::max(UsedOf(runtime, pool), std::min(pool->reserved, bytes));
    return cudaSuccess;
  });
}

}  // extern "C"

}  // namespace counterweight::fake_cuda
