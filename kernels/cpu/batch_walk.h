// One walk over a batch by the threads of a pool, as far as its rows have
// arrived.
#ifndef COUNTERWEIGHT_KERNELS_CPU_BATCH_WALK_H_
#define COUNTERWEIGHT_KERNELS_CPU_BATCH_WALK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/corrector.h"
#include "kernels/cpu/isa_kernels.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/thread_totals.h"

namespace counterweight::kernels {

// Walks rows in groups, and a group once all its rows have arrived. Neither the
// order of arrival nor the size of groups changes a bit. Used by one thread at
// a time.
class BatchWalk {
 public:
  // Allocates all that its walks need. The memory that the views point to must
  // outlive it.
  BatchWalk(const IsaKernels& kernels, ThreadPool* pool, const Plan& plan,
            const Batch& batch, const StopRequest& stop);

  // Bytes that the constructor allocates for a pool of `threads`.
  static int64_t ScratchBytes(const IsaKernels& kernels, const Plan& plan,
                              const Batch& batch, int threads);

  // Walks the groups of rows [0, rows) that were not walked yet. `job` is the
  // same at each call of one walk.
  void Advance(const Job& job, int64_t rows);

  // Walks the remaining rows and stores the sums of all; see ThreadTotals. The
  // next Advance begins a new walk. Returns false if the walk was stopped.
  bool Finish(const Job& job, RowRecord* total, PartialBins* partial = nullptr,
              StalenessResult* staleness = nullptr);

  // Walks rows of a batch that is complete, and stores their sums; see Finish.
  // Not between Advance and Finish.
  bool WalkRows(const Job& job, std::span<const int64_t> rows, RowRecord* total,
                PartialBins* partial, StalenessResult* staleness);

  // The calling thread's scratch for `kernels`.
  static void* LocalScratch(const IsaKernels& kernels);

 private:
  // Sizes of a walk's allocations, in elements.
  struct Sizes {
    int64_t group = 1;
    int64_t groups = 0;
    int64_t long_rows = 0;
    int64_t segments = 0;  // of the longest
  };

  static Sizes SizesOf(const Batch& batch, int threads);

  BatchWalk(const IsaKernels& kernels, ThreadPool* pool, const Plan& plan,
            const Batch& batch, const StopRequest& stop, const Sizes& sizes);

  // Runs tasks until one finds that the result is no longer wanted.
  template <class Task>
  void Run(int64_t count, const Task& task);

  // Walks [first, last) of Job::rows.
  void Walk(const Job& job, int64_t first, int64_t last);
  void WalkLongRows(const Job& job, int64_t first, int64_t last);
  void WalkLongRow(const Job& job, int64_t index, FinishedRow* out);
  int64_t GroupsOf(int64_t rows) const { return (rows + group_ - 1) / group_; }

  const IsaKernels& kernels_;
  ThreadPool* const pool_;
  const Plan& plan_;
  const Batch& batch_;
  const StopRequest& stop_;
  std::atomic<bool> stopped_ = false;
  const int64_t group_;     // rows of a group
  int64_t next_group_ = 0;  // first that was not walked
  ThreadTotals totals_;
  // The rows that are cut up, [num_sequences] pointers to them (null
  // for a short row), and the segments of one row; empty if there is none.
  std::vector<FinishedRow> finished_;
  std::vector<const FinishedRow*> long_rows_;
  std::vector<SegmentRecord> segments_;
  std::vector<LossRecord> losses_;
  std::vector<PrefixBase> bases_;
  std::vector<uint32_t> reasons_;
};

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_BATCH_WALK_H_
