#include "server/base/heap.h"

#include <malloc.h>

#include <cstddef>

#include "absl/synchronization/mutex.h"

namespace counterweight::server {

void BoundHeap() {
#ifdef __GLIBC__
  // Twice the largest message that the clients do not stream.
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  // A call frees its message, what that was read into, the answer and the
  // answer's message at its end: 7 MB for 256 x 1,024. The pages of all of it
  // would cost more to take again than the correction; what is above goes back.
  constexpr int kKeptBytes = 7 << 20;
  mallopt(M_TOP_PAD, kKeptBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes + (kKeptBytes >> 4));
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
