// Reused staging memory for payloads.
#ifndef COUNTERWEIGHT_SERVER_CALL_STAGING_POOL_H_
#define COUNTERWEIGHT_SERVER_CALL_STAGING_POOL_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "kernels/corrector.h"

namespace counterweight::server {

// Blocks of host memory, from the backend where it has some that transfers
// fast, else from the system in large pages. Free blocks are kept, since the
// first touch of a page costs more than the copy into it, as long as used and
// free ones together are not more than what was used at a time lately.
// Thread-safe.
class StagingPool {
 public:
  // The shortest meaning of "lately"; memory lies unused for at most twice this
  // time.
  static constexpr std::chrono::seconds kWindow{10};

  // `backend` must outlive this.
  explicit StagingPool(kernels::Corrector* backend,
                       std::chrono::milliseconds window = kWindow);
  // REQUIRES: every block has been given back.
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // At least `bytes` bytes, aligned to 64, their content undefined; given back
  // with the last reference, from any thread. Null if the system has no more.
  std::shared_ptr<std::byte> Take(int64_t bytes);

  // Bytes of blocks taken and not given back, and of those kept.
  int64_t used_bytes() const;
  int64_t free_bytes() const;

 private:
  struct Block {
    std::byte* data;
    int64_t bytes;
    bool from_backend;
  };

  bool Allocate(int64_t bytes, Block* block);
  void Free(const Block& block);
  void GiveBack(const Block& block);
  // Moves free blocks, the longest unused first, to *surplus until used and
  // free ones fit.
  void TakeSurplus(std::list<Block>* surplus);
  int64_t Allowed() const;
  // Runs a thread that shrinks the pool when it is idle.
  void Watch();

  kernels::Corrector* const backend_;
  const std::chrono::milliseconds window_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool stopping_ = false;
  std::list<Block> free_;  // the longest unused first
  int64_t free_bytes_ = 0;
  int64_t used_bytes_ = 0;
  int64_t peak_ = 0;  // of used_bytes_, in this window and in the last
  int64_t last_peak_ = 0;
  std::thread watcher_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_STAGING_POOL_H_
