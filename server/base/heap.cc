#include "server/base/heap.h"

#include <malloc.h>

#include <cstddef>

#include "absl/synchronization/mutex.h"

namespace counterweight::server {

void BoundHeap() {
#ifdef __GLIBC__
  // Twice the largest message that the clients do not stream.
  constexpr int kBytes = 4 << 20;
  mallopt(M_TRIM_THRESHOLD, kBytes);
  mallopt(M_MMAP_THRESHOLD, kBytes);
#endif
}

void RecordNoLockOrder() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

void TrimHeap() {
  // Other C libraries return memory by themselves, or have no function for it.
#ifdef __GLIBC__
  // Smaller amounts are not worth the page faults of taking them again.
  constexpr size_t kKeptBytes = size_t{32} << 20;
  if (mallinfo2().fordblks > kKeptBytes) malloc_trim(0);
#endif
}

}  // namespace counterweight::server
