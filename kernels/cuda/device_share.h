// Admission of runs to a device: a run gets its memory and its pipe whole, in
// the order of requests.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_DEVICE_SHARE_H_
#define COUNTERWEIGHT_KERNELS_CUDA_DEVICE_SHARE_H_

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/cuda/pipe.h"

namespace counterweight::kernels {

// Thread-safe. A run never waits while it holds a share, so runs cannot
// deadlock.
class DeviceShare {
 public:
  DeviceShare(int64_t bytes, int runs) : bytes_(bytes), runs_(runs) {}

  // REQUIRES: bytes <= capacity(). Waits for its turn; returns false if `stop`
  // said so.
  bool Take(int64_t bytes, const StopRequest& stop);
  // For a run whose rows have not all arrived: never waits, never overtakes,
  // and leaves half of the device to runs that are complete.
  bool TryTake(int64_t bytes);
  void GiveBack(int64_t bytes);

  int64_t capacity() const { return bytes_; }

  // Returns a pipe that was given back, or null.
  std::unique_ptr<Pipe> TakePipe();
  void KeepPipe(std::unique_ptr<Pipe> pipe);

 private:
  bool Fits(int64_t bytes) const {
    return used_runs_ < runs_ && bytes <= bytes_ - used_bytes_;
  }
  void Use(int64_t bytes) {
    ++used_runs_;
    used_bytes_ += bytes;
  }

  const int64_t bytes_;
  const int runs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t used_bytes_ = 0;
  int used_runs_ = 0;
  std::list<const void*> queue_;  // one address for each that waits
  std::vector<std::unique_ptr<Pipe>> pipes_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_DEVICE_SHARE_H_
