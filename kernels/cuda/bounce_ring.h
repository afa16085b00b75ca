// Pinned staging buffers for pageable memory, one direction of one run: the
// calling thread fills or drains one while others are in transfer.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_BOUNCE_RING_H_
#define COUNTERWEIGHT_KERNELS_CUDA_BOUNCE_RING_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace counterweight::kernels {

inline constexpr int kBounceSlots = 3;

// Small pieces share a buffer. Buffers are allocated when first needed and
// kept.
class BounceRing {
 public:
  explicit BounceRing(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {}
  // REQUIRES: no transfer is in flight.
  ~BounceRing();
  BounceRing(const BounceRing&) = delete;
  BounceRing& operator=(const BounceRing&) = delete;

  // Enqueues copies of from [*done, bytes) to the device and adds their bytes
  // to *done. Unless `waits`, copies only as far as buffers are free.
  cudaError_t Upload(char* to, const char* from, size_t bytes, bool waits,
                     cudaStream_t stream, size_t* done);

  // Enqueues copies from the device. They are in `to` after Drain(), some
  // earlier.
  cudaError_t Download(char* to, const char* from, size_t bytes,
                       cudaStream_t stream);
  cudaError_t Drain();

  // Forgets what was downloaded. REQUIRES: no transfer is in flight.
  void Forget();

 private:
  struct Piece {
    char* to;
    size_t offset;
    size_t bytes;
  };
  struct Slot {
    char* memory = nullptr;
    cudaEvent_t passed = nullptr;
    bool in_flight = false;
    size_t used = 0;
    std::vector<Piece> pieces;  // of downloads
  };

  cudaError_t Create(Slot* slot);
  // Makes room in slots_[current_], moving on if it is full. *ready is false if
  // that would block.
  cudaError_t MakeRoom(bool waits, bool* ready);
  // REQUIRES: the slot's transfers are over.
  static void Empty(Slot* slot);

  const size_t bytes_;
  Slot slots_[kBounceSlots];
  int current_ = 0;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_BOUNCE_RING_H_
