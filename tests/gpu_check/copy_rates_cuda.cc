#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "tests/gpu_check/copy_rates.h"

namespace counterweight::kernels {
namespace {

// Resources of one measurement; null if the device has no room.
struct Buffers {
  explicit Buffers(size_t bytes) {
    cudaMalloc(&device[0], bytes);
    cudaMalloc(&device[1], bytes);
    for (cudaStream_t& stream : streams) {
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() {
    for (void* memory : device) cudaFree(memory);
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }
  bool ok() const {
    return device[0] != nullptr && device[1] != nullptr &&
           streams[0] != nullptr && streams[1] != nullptr;
  }

  void* device[2] = {};
  cudaStream_t streams[2] = {};
};

// Seconds by the device's clock, negative if it failed.
double TimeCopy(const Buffers& buffers, size_t bytes) {
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  float milliseconds = -1.0f;
  if (cudaEventCreate(&start) == cudaSuccess &&
      cudaEventCreate(&stop) == cudaSuccess &&
      cudaEventRecord(start, buffers.streams[0]) == cudaSuccess &&
      cudaMemcpyAsync(buffers.device[1], buffers.device[0], bytes,
                      cudaMemcpyDeviceToDevice,
                      buffers.streams[0]) == cudaSuccess &&
      cudaEventRecord(stop, buffers.streams[0]) == cudaSuccess &&
      cudaEventSynchronize(stop) == cudaSuccess &&
      cudaEventElapsedTime(&milliseconds, start, stop) != cudaSuccess) {
    milliseconds = -1.0f;
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  return static_cast<double>(milliseconds) * 1e-3;
}

class HostBuffer {
 public:
  HostBuffer(size_t bytes, bool pinned) : pinned_(pinned) {
    if (!pinned) {
      data_ = std::malloc(bytes);
    } else if (cudaHostAlloc(&data_, bytes, cudaHostAllocPortable) !=
               cudaSuccess) {
      data_ = nullptr;
    }
    if (data_ != nullptr) std::memset(data_, 1, bytes);
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() {
    if (pinned_) {
      cudaFreeHost(data_);
    } else {
      std::free(data_);
    }
  }
  void* data() const { return data_; }

 private:
  bool pinned_;
  void* data_ = nullptr;
};

}  // namespace

Timing TimeDeviceCopy(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  const Buffers buffers(size);
  if (!buffers.ok()) return {};
  return Repeat([&] { return TimeCopy(buffers, size); });
}

LinkRates MeasureLink(int64_t bytes, bool pinned) {
  const auto size = static_cast<size_t>(bytes);
  const Buffers buffers(size);
  const HostBuffer from(size, pinned);
  const HostBuffer to(size, pinned);
  if (!buffers.ok() || from.data() == nullptr || to.data() == nullptr) {
    return {};
  }
  // Pageable memory goes through the driver's own buffers, one copy at a time.
  const auto copy = [&](void* to_here, const void* from_there,
                        cudaMemcpyKind kind, cudaStream_t stream) {
    return pinned ? cudaMemcpyAsync(to_here, from_there, size, kind, stream)
                  : cudaMemcpy(to_here, from_there, size, kind);
  };
  const auto rate = [&](bool up, bool down) {
    const Timing timing = Repeat([&] {
      const double start = Now();
      cudaError_t error = cudaSuccess;
      if (up) {
        error = copy(buffers.device[0], from.data(), cudaMemcpyHostToDevice,
                     buffers.streams[0]);
      }
      if (down && error == cudaSuccess) {
        error = copy(to.data(), buffers.device[1], cudaMemcpyDeviceToHost,
                     buffers.streams[1]);
      }
      for (cudaStream_t stream : buffers.streams) {
        if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
      }
      return error == cudaSuccess ? Now() - start : -1.0;
    });
    const double moved =
        static_cast<double>(bytes) * ((up ? 1 : 0) + (down ? 1 : 0));
    return timing.repetitions == 0 ? 0.0 : moved / timing.best;
  };
  return {rate(true, false), rate(false, true),
          pinned ? rate(true, true) : 0.0};
}

}  // namespace counterweight::kernels
