#include "kernels/cuda/cuda_corrector.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/cuda/batch_blocks.h"
#include "kernels/cuda/callers_device.h"
#include "kernels/cuda/cuda_run.h"
#include "kernels/cuda/cuda_try.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/ipc_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/part_memory.h"
#include "kernels/cuda/placement.h"
#include "kernels/cuda/probe.h"
#include "kernels/float_modes.h"
#include "kernels/walk/loss_batch.h"

namespace counterweight::kernels {
namespace {

class CudaCorrector final : public Corrector {
 public:
  CudaCorrector(int device, const CudaOptions& options,
                std::unique_ptr<DevicePool> pool, DeviceInfo info)
      : device_{device,
                options,
                std::move(pool),
                {options.memory_bytes, options.concurrent_runs}},
        info_(std::move(info)) {}

  CorrectResult Correct(const CorrectionSpec& spec, const Batch& batch,
                        const Outputs& outputs) override {
    const DefaultFloatModes modes;
    return CudaRun(&device_, spec, batch, outputs, nullptr).Finish();
  }

  std::unique_ptr<CorrectRun> Begin(const CorrectionSpec& spec,
                                    const Batch& batch, const Outputs& outputs,
                                    StopRequest stop) override {
    // The plan is computed on this thread.
    const DefaultFloatModes modes;
    return std::make_unique<CudaRun>(&device_, spec, batch, outputs,
                                     std::move(stop));
  }

  std::unique_ptr<CorrectRun> BeginInStream(const CorrectionSpec& spec,
                                            const Batch& batch,
                                            const Outputs& outputs,
                                            StopRequest stop,
                                            void* stream) override {
    const DefaultFloatModes modes;
    return std::make_unique<CudaRun>(&device_, spec, batch, outputs,
                                     std::move(stop),
                                     static_cast<cudaStream_t>(stream));
  }

  MemoryPlace PlaceOf(const void* memory) const override {
    int device = 0;
    if (!IsOnDevice(memory, &device)) return MemoryPlace::kHost;
    return device == device_.index ? MemoryPlace::kDevice
                                   : MemoryPlace::kOtherDevice;
  }

  int64_t ScratchBytes(const CorrectionSpec& spec,
                       const Batch& batch) const override {
    return Corrector::ScratchBytes(spec, batch) +
           BlocksBytes(batch, device_.options.block_positions);
  }

  void ReturnUnused() override {
    const CallersDevice restored;
    if (cudaSetDevice(device_.index) != cudaSuccess) return;
    device_.pool->TrimTo(device_.share.NeededLately());
  }

  bool IsAlive() override { return IsDeviceAlive(device_.index); }

  BackendInfo Info() const override { return {"cuda", "", 0, {info_}}; }

  // Pinned memory; other memory is copied through a staging buffer.
  void* AllocateHost(size_t bytes) override {
    void* memory = nullptr;
    if (cudaSetDevice(device_.index) != cudaSuccess ||
        cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) != cudaSuccess) {
      cudaGetLastError();  // clears the sticky error
      return nullptr;
    }
    return memory;
  }

  void FreeHost(void* memory) override {
    cudaSetDevice(device_.index);
    cudaFreeHost(memory);
    cudaGetLastError();
  }

  bool PinHost(void* memory, size_t bytes, bool is_read_only) override {
    unsigned flags = cudaHostRegisterPortable;
    if (is_read_only) flags |= cudaHostRegisterReadOnly;
    if (cudaSetDevice(device_.index) == cudaSuccess &&
        cudaHostRegister(memory, bytes, flags) == cudaSuccess) {
      return true;
    }
    cudaGetLastError();  // clears the sticky error
    return false;
  }

  void UnpinHost(void* memory) override {
    cudaSetDevice(device_.index);
    cudaHostUnregister(memory);
    cudaGetLastError();
  }

  void* OpenDeviceMemory(const IpcHandle& handle, const DeviceUuid& uuid,
                         int64_t* bytes, std::string* error) override {
    if (!Computes(uuid, error)) return nullptr;
    return OpenIpcMemory(handle, device_.index, bytes, error);
  }

  void* OpenDeviceParts(std::span<const int> parts, int64_t part_bytes,
                        const DeviceUuid& uuid, std::string* error) override {
    if (!Computes(uuid, error)) return nullptr;
    return parts_.Open(parts, part_bytes, device_.index, error);
  }

  void CloseDeviceMemory(void* memory) override {
    cudaSetDevice(device_.index);
    if (parts_.Close(memory)) return;
    cudaIpcCloseMemHandle(memory);
    cudaGetLastError();
  }

  bool CopyFromDevice(void* to, const void* from, size_t bytes,
                      std::string* error) override {
    const CallersDevice restored;
    if (!IsCurrent(error)) return false;
    const cudaError_t status =
        cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
    if (status == cudaSuccess) return true;
    cudaGetLastError();
    *error = std::string("copying from device memory: ") +
             cudaGetErrorString(status);
    return false;
  }

 private:
  // Whether the device is this one, which becomes the calling thread's.
  bool Computes(const DeviceUuid& uuid, std::string* error) const {
    if (uuid == info_.uuid) return IsCurrent(error);
    *error = "the server does not compute on that device";
    return false;
  }

  // Makes the device the calling thread's.
  bool IsCurrent(std::string* error) const {
    const cudaError_t status = cudaSetDevice(device_.index);
    if (status == cudaSuccess) return true;
    cudaGetLastError();
    *error = std::string("choosing the device: ") + cudaGetErrorString(status);
    return false;
  }

  SharedDevice device_;
  const DeviceInfo info_;
  PartMemory parts_;
};

cudaError_t Begin(int device, cudaDeviceProp* properties, CudaOptions* options,
                  DevicePool* pool) {
  COUNTERWEIGHT_CUDA_TRY(cudaSetDevice(device));
  COUNTERWEIGHT_CUDA_TRY(cudaGetDeviceProperties(properties, device));
  COUNTERWEIGHT_CUDA_TRY(pool->Create(device));
  int shared_bytes = 0;
  COUNTERWEIGHT_CUDA_TRY(PrepareKernels(&shared_bytes));
  if (options->shared_bytes == 0) options->shared_bytes = shared_bytes;
  if (options->memory_bytes > 0) return cudaSuccess;
  size_t free = 0;
  size_t total = 0;
  COUNTERWEIGHT_CUDA_TRY(cudaMemGetInfo(&free, &total));
  options->memory_bytes = static_cast<int64_t>(free / 10 * 9);
  return cudaSuccess;
}

}  // namespace

std::unique_ptr<Corrector> MakeCudaCorrector(int device,
                                             const CudaOptions& options,
                                             std::string* error) {
  const CallersDevice restored;
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && (device < 0 || device >= count)) {
    *error = "there is no CUDA device " + std::to_string(device);
    return nullptr;
  }
  cudaDeviceProp properties{};
  CudaOptions chosen = options;
  auto pool = std::make_unique<DevicePool>();
  if (status == cudaSuccess) {
    status = Begin(device, &properties, &chosen, pool.get());
  }
  if (status != cudaSuccess) {
    cudaGetLastError();
    *error = WhyNoDevice(status);
    return nullptr;
  }
  DeviceInfo info{device, properties.name, properties.totalGlobalMem};
  std::memcpy(info.uuid.data(), properties.uuid.bytes, info.uuid.size());
  return std::make_unique<CudaCorrector>(device, chosen, std::move(pool),
                                         std::move(info));
}

std::unique_ptr<Corrector> MakeCudaCorrector(int device, int64_t memory_bytes,
                                             std::string* error) {
  return MakeCudaCorrector(device, CudaOptions{.memory_bytes = memory_bytes},
                           error);
}

}  // namespace counterweight::kernels
