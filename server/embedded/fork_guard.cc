#include "server/embedded/fork_guard.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace counterweight::embedded {
namespace {

// Holds the process in the upper half and the number of its live guards in the
// lower half, so that a child recognises its parent's number.
std::atomic<uint64_t> guards;

constexpr uint64_t kCount = 0xFFFFFFFFu;

}  // namespace

ForkGuard::ForkGuard() {
  const uint64_t process = static_cast<uint64_t>(getpid()) << 32;
  uint64_t seen = guards.load();
  for (;;) {
    const bool is_ours = (seen & ~kCount) == process;
    if (!is_ours && (seen & kCount) != 0) {
      is_safe_ = false;
      return;
    }
    if (guards.compare_exchange_weak(seen, (is_ours ? seen : process) + 1)) {
      return;
    }
  }
}

ForkGuard::~ForkGuard() {
  if (is_safe_) guards.fetch_sub(1);
}

}  // namespace counterweight::embedded
