#include "tests/kernels/cuda_on_cpu/trainer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace counterweight::kernels {
namespace {

constexpr int kGarbage = 0x3c;

void Require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "the trainer: %s\n", cudaGetErrorString(error));
  std::abort();
}

}  // namespace

Trainer::Trainer(int device, bool has_stream) : device_(device) {
  Require(cudaSetDevice(device_));
  if (!has_stream) return;
  Require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Trainer::~Trainer() {
  Wait();
  for (const Array& array : arrays_) {
    cudaFree(array.device);
    cudaFreeHost(array.staged);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void* Trainer::Allocate(size_t size) {
  // An empty array has an address too.
  Require(cudaSetDevice(device_));
  void* device = nullptr;
  void* staged = nullptr;
  Require(cudaMalloc(&device, size + 1));
  Require(cudaHostAlloc(&staged, size + 1, cudaHostAllocPortable));
  arrays_.push_back(
      {static_cast<char*>(device), static_cast<char*>(staged), size});
  return device;
}

void* Trainer::Send(const void* bytes, size_t size) {
  void* const device = Allocate(size);
  if (size == 0) return device;
  char* const staged = arrays_.back().staged;
  std::memcpy(staged, bytes, size);
  Require(
      cudaMemcpyAsync(device, staged, size, cudaMemcpyHostToDevice, stream_));
  return device;
}

void Trainer::Overwrite() {
  for (const Array& array : arrays_) {
    if (array.to != nullptr || array.size == 0) continue;
    Require(cudaMemsetAsync(array.device, kGarbage, array.size, stream_));
  }
}

void Trainer::Receive(const void* array, void* to, size_t size) {
  Array* const found = Find(array);
  found->to = to;
  if (size == 0) return;
  Require(cudaMemcpyAsync(found->staged, found->device, size,
                          cudaMemcpyDeviceToHost, stream_));
}

void Trainer::Wait() {
  Require(cudaSetDevice(device_));
  Require(cudaStreamSynchronize(stream_));
  for (Array& array : arrays_) {
    if (array.to == nullptr) continue;
    std::memcpy(array.to, array.staged, array.size);
    array.to = nullptr;
  }
}

bool Trainer::Owns(const void* byte) const {
  const auto at = reinterpret_cast<uintptr_t>(byte);
  for (const Array& array : arrays_) {
    const auto begin = reinterpret_cast<uintptr_t>(array.device);
    if (at >= begin && at < begin + array.size) return true;
  }
  return false;
}

Trainer::Array* Trainer::Find(const void* array) {
  for (Array& known : arrays_) {
    if (known.device == array) return &known;
  }
  std::abort();
}

}  // namespace counterweight::kernels
