// The sums of the rows that each thread of a walk has walked.
#ifndef COUNTERWEIGHT_KERNELS_CPU_THREAD_TOTALS_H_
#define COUNTERWEIGHT_KERNELS_CPU_THREAD_TOTALS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cpu/isa_kernels.h"
#include "kernels/walk/partial_layout.h"

namespace counterweight::kernels {

// Sums by staleness of a walk that measured it.
struct StalenessResult {
  StalenessSums sums{};  // measured is 0 if some version was wrong
  StalenessBins bins[kNumStalenessBuckets]{};
};

// Memory of IsaKernels::totals for each thread that may be at a group of rows.
// Sums are exact, so that no bit depends on which thread took which group.
class ThreadTotals {
 public:
  // `plan` must outlive it.
  ThreadTotals(const IsaKernels& kernels, const Plan& plan, int threads);
  ~ThreadTotals();
  ThreadTotals(const ThreadTotals&) = delete;
  ThreadTotals& operator=(const ThreadTotals&) = delete;

  // Bytes that the constructor allocates at most.
  static int64_t Bytes(const IsaKernels& kernels, int threads);

  // Calls f(totals) with totals that no other thread has. REQUIRES: at most
  // `threads` threads are here.
  template <class F>
  void With(const F& f) {
    Slot& slot = Take();
    f(slot.memory);
    slot.is_taken.store(false, std::memory_order_release);
  }

  // Stores the sums of all rows, and their bins and those by staleness unless
  // these are null; the next With() begins anew. REQUIRES: no thread is in
  // With().
  void Finish(RowRecord* total, PartialBins* partial,
              StalenessResult* staleness);

 private:
  struct Slot {
    std::atomic<bool> is_taken = false;
    bool has_begun = false;
    void* memory = nullptr;
  };

  Slot& Take();

  const IsaKernels& kernels_;
  const Plan& plan_;
  // The slots, and then the totals of each.
  void* const memory_;
  const std::span<Slot> slots_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_THREAD_TOTALS_H_
