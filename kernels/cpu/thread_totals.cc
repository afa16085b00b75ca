#include "kernels/cpu/thread_totals.h"

#include <new>
#include <utility>

#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
namespace {

constexpr size_t kAlignment = 64;

size_t BytesOfThread(const IsaKernels& kernels) {
  return (kernels.totals_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Small batches follow each other quickly, so a thread keeps the memory of its
// last one.
constexpr size_t kMostKept = 512 << 10;

class SpareMemory {
 public:
  ~SpareMemory() { Free(memory_); }

  // Memory of at least so many bytes.
  void* Take(size_t bytes) {
    if (bytes <= bytes_) {
      bytes_ = 0;
      return std::exchange(memory_, nullptr);
    }
    return ::operator new (bytes, std::align_val_t{kAlignment});
  }
  void Keep(void* memory, size_t bytes) {
    if (bytes > kMostKept || bytes <= bytes_) {
      Free(memory);
      return;
    }
    Free(std::exchange(memory_, memory));
    bytes_ = bytes;
  }

 private:
  static void Free(void* memory) {
    ::operator delete (memory, std::align_val_t{kAlignment});
  }

  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

thread_local SpareMemory spare_memory;

}  // namespace

ThreadTotals::ThreadTotals(const IsaKernels& kernels, const Plan& plan,
                           int threads)
    : kernels_(kernels),
      plan_(plan),
      slots_(static_cast<size_t>(threads)),
      memory_(spare_memory.Take(BytesOfThread(kernels) * slots_.size())) {
  auto* at = static_cast<std::byte*>(memory_);
  for (Slot& slot : slots_) {
    slot.memory = at;
    at += BytesOfThread(kernels);
  }
}

ThreadTotals::~ThreadTotals() {
  spare_memory.Keep(memory_, BytesOfThread(kernels_) * slots_.size());
}

int64_t ThreadTotals::Bytes(const IsaKernels& kernels, int threads) {
  return threads * static_cast<int64_t>(BytesOfThread(kernels) + sizeof(Slot));
}

ThreadTotals::Slot& ThreadTotals::Take() {
  for (size_t i = 0;; i = (i + 1) % slots_.size()) {
    Slot& slot = slots_[i];
    if (slot.is_taken.exchange(true, std::memory_order_acquire)) continue;
    if (!std::exchange(slot.has_begun, true)) {
      kernels_.begin_totals(plan_, slot.memory);
    }
    return slot;
  }
}

void ThreadTotals::Finish(RowRecord* total) {
  void* all = nullptr;
  for (Slot& slot : slots_) {
    if (!std::exchange(slot.has_begun, false)) continue;
    if (all == nullptr) {
      all = slot.memory;
    } else {
      kernels_.merge_totals(plan_, all, slot.memory);
    }
  }
  if (all == nullptr) {
    clear_row(plan_, *total);
  } else {
    kernels_.take_totals(plan_, all, total);
  }
}

}  // namespace counterweight::kernels
