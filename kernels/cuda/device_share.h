// Admission of runs to a device: a run gets its memory and its pipe whole, in
// the order of requests.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_DEVICE_SHARE_H_
#define COUNTERWEIGHT_KERNELS_CUDA_DEVICE_SHARE_H_

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
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
  // One that waits. Its owner keeps it where it is until it has its share or
  // has left.
  struct Waiter {
    int64_t bytes = 0;
    // Called once the share is the waiter's, from the thread that gave it back.
    std::function<void()> wake;
    bool has_share = false;  // the DeviceShare's to read and write
  };

  DeviceShare(int64_t bytes, int runs) : bytes_(bytes), runs_(runs) {}

  // Takes the waiter's bytes now, or puts it in line: it has them later, and is
  // woken then. REQUIRES: waiter->bytes <= capacity().
  bool Request(Waiter* waiter);
  bool HasShare(const Waiter& waiter);
  // Ends the waiting. True if the waiter has its share.
  bool Leave(Waiter* waiter);
  // Blocks until it has `bytes`; returns false if `stop` returns true first.
  // REQUIRES: bytes <= capacity().
  bool Take(int64_t bytes, const StopRequest& stop);
  // For a run with rows that have not all arrived: never waits, never
  // overtakes, and leaves half of the device to runs that are complete.
  bool TryTake(int64_t bytes);
  void GiveBack(int64_t bytes);

  int64_t capacity() const { return bytes_; }

  // Returns the largest number of bytes that runs had at a time since the call
  // before the last one.
  int64_t NeededLately();

  // Returns a pipe that was given back, or null.
  std::unique_ptr<Pipe> TakePipe();
  void KeepPipe(std::unique_ptr<Pipe> pipe);

 private:
  using Wakes = std::vector<std::function<void()>>;

  bool Fits(int64_t bytes) const {
    return used_runs_ < runs_ && bytes <= bytes_ - used_bytes_;
  }
  void Use(int64_t bytes) {
    ++used_runs_;
    used_bytes_ += bytes;
    peak_ = std::max(peak_, used_bytes_);
  }
  // Gives shares to the first in line while there is room. The caller calls the
  // result without the mutex. REQUIRES: mutex_ is held.
  Wakes ServeLine();

  const int64_t bytes_;
  const int runs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t used_bytes_ = 0;
  int used_runs_ = 0;
  int64_t peak_ = 0;  // of used_bytes_, since the last NeededLately
  int64_t last_peak_ = 0;
  std::list<Waiter*> line_;
  std::vector<std::unique_ptr<Pipe>> pipes_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_DEVICE_SHARE_H_
