#include "kernels/cuda/bounce_ring.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/cuda_try.h"
#include "kernels/cuda/wait.h"

namespace counterweight::kernels {

BounceRing::~BounceRing() {
  for (Slot& slot : slots_) {
    if (slot.passed != nullptr) cudaEventDestroy(slot.passed);
    if (slot.memory != nullptr) cudaFreeHost(slot.memory);
  }
}

cudaError_t BounceRing::Create(Slot* slot) {
  if (slot->passed == nullptr) {
    COUNTERWEIGHT_CUDA_TRY(cudaEventCreateWithFlags(
        &slot->passed, cudaEventDisableTiming | cudaEventBlockingSync));
  }
  if (slot->memory != nullptr) return cudaSuccess;
  void* memory = nullptr;
  COUNTERWEIGHT_CUDA_TRY(cudaHostAlloc(&memory, bytes_, cudaHostAllocPortable));
  slot->memory = static_cast<char*>(memory);
  return cudaSuccess;
}

void BounceRing::Empty(Slot* slot) {
  for (const Piece& piece : slot->pieces) {
    std::memcpy(piece.to, slot->memory + piece.offset, piece.bytes);
  }
  slot->pieces.clear();
  slot->used = 0;
  slot->in_flight = false;
}

cudaError_t BounceRing::MakeRoom(bool waits, bool* ready) {
  *ready = true;
  if (slots_[current_].used == bytes_) {
    const int next = (current_ + 1) % kBounceSlots;
    Slot& slot = slots_[next];
    if (slot.in_flight) {
      const cudaError_t error =
          waits ? WaitFor(slot.passed) : cudaEventQuery(slot.passed);
      *ready = error != cudaErrorNotReady;
      if (!*ready) {
        cudaGetLastError();  // clears the sticky error
        return cudaSuccess;
      }
      COUNTERWEIGHT_CUDA_TRY(error);
      Empty(&slot);
    }
    current_ = next;
  }
  return Create(&slots_[current_]);
}

cudaError_t BounceRing::Upload(char* to, const char* from, size_t bytes,
                               bool waits, cudaStream_t stream, size_t* done) {
  while (*done < bytes) {
    bool ready = false;
    COUNTERWEIGHT_CUDA_TRY(MakeRoom(waits, &ready));
    if (!ready) return cudaSuccess;
    Slot& slot = slots_[current_];
    const size_t piece = std::min(bytes - *done, bytes_ - slot.used);
    char* const staged = slot.memory + slot.used;
    std::memcpy(staged, from + *done, piece);
    COUNTERWEIGHT_CUDA_TRY(cudaMemcpyAsync(to + *done, staged, piece,
                                           cudaMemcpyHostToDevice, stream));
    slot.used += piece;
    slot.in_flight = true;
    COUNTERWEIGHT_CUDA_TRY(cudaEventRecord(slot.passed, stream));
    *done += piece;
  }
  return cudaSuccess;
}

cudaError_t BounceRing::Download(char* to, const char* from, size_t bytes,
                                 cudaStream_t stream) {
  for (size_t done = 0; done < bytes;) {
    bool ready = false;
    COUNTERWEIGHT_CUDA_TRY(MakeRoom(true, &ready));
    Slot& slot = slots_[current_];
    const size_t piece = std::min(bytes - done, bytes_ - slot.used);
    COUNTERWEIGHT_CUDA_TRY(cudaMemcpyAsync(slot.memory + slot.used, from + done,
                                           piece, cudaMemcpyDeviceToHost,
                                           stream));
    slot.pieces.push_back({to + done, slot.used, piece});
    slot.used += piece;
    slot.in_flight = true;
    COUNTERWEIGHT_CUDA_TRY(cudaEventRecord(slot.passed, stream));
    done += piece;
  }
  return cudaSuccess;
}

cudaError_t BounceRing::Drain() {
  for (int i = 1; i <= kBounceSlots; ++i) {
    Slot& slot = slots_[(current_ + i) % kBounceSlots];  // the oldest first
    if (!slot.in_flight) continue;
    COUNTERWEIGHT_CUDA_TRY(WaitFor(slot.passed));
    Empty(&slot);
  }
  return cudaSuccess;
}

void BounceRing::Forget() {
  for (Slot& slot : slots_) {
    slot.pieces.clear();
    slot.used = 0;
    slot.in_flight = false;
  }
}

}  // namespace counterweight::kernels
