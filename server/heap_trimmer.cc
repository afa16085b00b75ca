#include "server/heap_trimmer.h"

#include <malloc.h>

#include <cstddef>
#include <utility>

namespace counterweight::server {
namespace {

// Free memory that is not worth the page faults of taking it again.
[[maybe_unused]] constexpr size_t kKeptBytes = size_t{32} << 20;

// Other C libraries give memory back by themselves, or cannot be asked to.
void Trim() {
#ifdef __GLIBC__
  const struct mallinfo2 heap = mallinfo2();
  // keepcost is what glibc could trim by itself; the rest lies between blocks.
  if (heap.fordblks > kKeptBytes) malloc_trim(0);
#endif
}

}  // namespace

HeapTrimmer::HeapTrimmer(std::function<bool()> is_idle,
                         std::chrono::milliseconds period)
    : is_idle_(std::move(is_idle)),
      period_(period),
      thread_([this] { Run(); }) {}

void HeapTrimmer::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HeapTrimmer::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_.wait_for(lock, period_, [this] { return stopping_; })) {
    lock.unlock();
    if (is_idle_()) Trim();
    lock.lock();
  }
}

}  // namespace counterweight::server
