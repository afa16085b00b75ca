#include "kernels/cpu/thread_totals.h"

#include <cstddef>
#include <new>
#include <utility>

#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
namespace {

constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
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
      memory_(spare_memory.Take(static_cast<size_t>(Bytes(kernels, threads)))),
      slots_(static_cast<Slot*>(memory_), static_cast<size_t>(threads)) {
  auto* at = static_cast<std::byte*>(memory_) + Aligned(slots_.size_bytes());
  for (Slot& slot : slots_) {
    ::new (&slot) Slot{.memory = at};
    at += Aligned(kernels.totals_bytes);
  }
}

ThreadTotals::~ThreadTotals() {
  const auto threads = static_cast<int>(slots_.size());
  spare_memory.Keep(memory_, static_cast<size_t>(Bytes(kernels_, threads)));
}

int64_t ThreadTotals::Bytes(const IsaKernels& kernels, int threads) {
  const auto count = static_cast<size_t>(threads);
  return static_cast<int64_t>(Aligned(count * sizeof(Slot)) +
                              count * Aligned(kernels.totals_bytes));
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

void ThreadTotals::Finish(RowRecord* total, PartialBins* partial,
                          StalenessResult* staleness) {
  void* all = nullptr;
  for (Slot& slot : slots_) {
    if (!std::exchange(slot.has_begun, false)) continue;
    if (all == nullptr) {
      all = slot.memory;
    } else {
      kernels_.merge_totals(plan_, all, slot.memory);
    }
  }
  if (staleness != nullptr) {
    staleness->sums.measured = 1;
    if (all != nullptr &&
        !kernels_.take_staleness(all, &staleness->sums, staleness->bins)) {
      staleness->sums = {};
    }
  }
  if (partial != nullptr) {
    const RecordColumns& columns = partial->layout.columns;
    partial->bins.assign(static_cast<size_t>(columns.totals), 0.0);
    if (all != nullptr) {
      kernels_.take_bins(plan_, all, columns, partial->bins.data());
    }
  }
  if (all == nullptr) {
    clear_row(plan_, *total);
  } else {
    kernels_.take_totals(plan_, all, total);
  }
}

}  // namespace counterweight::kernels
