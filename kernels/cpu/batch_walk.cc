#include "kernels/cpu/batch_walk.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace counterweight::kernels {
namespace {

// Few groups are best, but enough that threads end together.
constexpr int64_t kMaxGroups = 512;
constexpr int64_t kLeastGroupsOfThread = 8;
constexpr int64_t kMostGroupsOfThread = 32;
// As much as a row's end costs.
constexpr int64_t kRowTokens = 128;
// Between the two: some 6 us.
constexpr int64_t kLeastGroupTokens = 1 << 11;
// More groups than that: the rows that a stream brings at once, a tenth of a
// million tokens, are work for all threads.
constexpr int64_t kMostGroupTokens = 1 << 14;

struct AlignedFree {
  void operator()(void* p) const { std::free(p); }
};
using ScratchPtr = std::unique_ptr<void, AlignedFree>;

ScratchPtr AllocateScratch(const IsaKernels& kernels) {
  constexpr size_t kAlignment = 64;
  const size_t bytes =
      (kernels.scratch_bytes + kAlignment - 1) / kAlignment * kAlignment;
  ScratchPtr scratch(std::aligned_alloc(kAlignment, bytes));
  std::memset(scratch.get(), 0, bytes);
  return scratch;
}

struct Row {
  int64_t begin;
  int64_t end;
  int64_t index;
  int64_t segments() const { return SegmentsOf(end - begin); }
  bool is_long() const { return segments() > kMaxShortRowSegments; }
  SegmentSpan span(int64_t i) const {
    return {begin + i * kSegmentPositions,
            std::min(end, begin + (i + 1) * kSegmentPositions), index};
  }
};

Row RowOf(const Batch& batch, int64_t i) {
  return {batch.offsets[i], batch.offsets[i + 1], i};
}

}  // namespace

// Powers of two fill the registers in which rows end together.
BatchWalk::Sizes BatchWalk::SizesOf(const Batch& batch, int threads) {
  Sizes sizes;
  const int64_t rows = batch.num_sequences;
  const int64_t tokens = batch.offsets[rows] + rows * kRowTokens;
  const int64_t few =
      std::clamp(tokens / kLeastGroupTokens, threads * kLeastGroupsOfThread,
                 threads * kMostGroupsOfThread);
  const int64_t groups =
      std::min(kMaxGroups, std::max(few, tokens / kMostGroupTokens));
  while (rows > sizes.group * groups) sizes.group *= 2;
  sizes.groups = (rows + sizes.group - 1) / sizes.group;
  for (int64_t i = 0; i < rows; ++i) {
    const Row row = RowOf(batch, i);
    if (!row.is_long()) continue;
    ++sizes.long_rows;
    sizes.segments = std::max(sizes.segments, row.segments());
  }
  return sizes;
}

BatchWalk::BatchWalk(const IsaKernels& kernels, ThreadPool* pool,
                     const Plan& plan, const Batch& batch,
                     const StopRequest& stop)
    : BatchWalk(kernels, pool, plan, batch, stop,
                SizesOf(batch, pool->threads())) {}

BatchWalk::BatchWalk(const IsaKernels& kernels, ThreadPool* pool,
                     const Plan& plan, const Batch& batch,
                     const StopRequest& stop, const Sizes& sizes)
    : kernels_(kernels),
      pool_(pool),
      plan_(plan),
      batch_(batch),
      stop_(stop),
      group_(sizes.group),
      totals_(kernels, plan, pool->threads()) {
  if (sizes.long_rows == 0) return;
  const auto segments = static_cast<size_t>(sizes.segments);
  finished_.resize(static_cast<size_t>(sizes.long_rows));
  long_rows_.resize(static_cast<size_t>(batch.num_sequences), nullptr);
  size_t next = 0;
  for (int64_t i = 0; i < batch.num_sequences; ++i) {
    if (!RowOf(batch, i).is_long()) continue;
    long_rows_[static_cast<size_t>(i)] = &finished_[next++];
  }
  segments_.resize(segments);
  losses_.resize(plan.loss.active ? segments : 0);
  bases_.resize(segments * static_cast<size_t>(plan.num_prefixes));
  reasons_.resize(segments);
}

int64_t BatchWalk::ScratchBytes(const IsaKernels& kernels, const Plan& plan,
                                const Batch& batch, int threads) {
  const Sizes sizes = SizesOf(batch, threads);
  const auto bytes = [](int64_t count, size_t size) {
    return count * static_cast<int64_t>(size);
  };
  int64_t sum = ThreadTotals::Bytes(kernels, threads);
  if (sizes.long_rows == 0) return sum;
  sum += bytes(sizes.long_rows, sizeof(FinishedRow));
  sum += bytes(batch.num_sequences, sizeof(uintptr_t));
  sum += bytes(sizes.segments, sizeof(SegmentRecord) + sizeof(uint32_t) +
                                   (plan.loss.active ? sizeof(LossRecord) : 0));
  return sum + bytes(sizes.segments * plan.num_prefixes, sizeof(PrefixBase));
}

void* BatchWalk::LocalScratch(const IsaKernels& kernels) {
  // One per thread and instruction set, for the thread's lifetime: too large
  // for the stack, and needed too often for the heap.
  thread_local const IsaKernels* owner = nullptr;
  thread_local ScratchPtr scratch;
  if (owner != &kernels) {
    scratch = AllocateScratch(kernels);
    owner = &kernels;
  }
  return scratch.get();
}

template <class Task>
void BatchWalk::Run(int64_t count, const Task& task) {
  pool_->Run(count, [&](int64_t i) {
    if (stopped_.load(std::memory_order_relaxed)) return;
    if (stop_ && stop_()) {
      stopped_.store(true, std::memory_order_relaxed);
    } else {
      task(i);
    }
  });
}

void BatchWalk::Advance(const Job& job, int64_t rows) {
  const bool is_all = rows == batch_.num_sequences;
  const int64_t groups = is_all ? GroupsOf(rows) : rows / group_;
  if (groups <= next_group_) return;
  const int64_t first = next_group_;
  next_group_ = groups;
  Walk(job, first * group_, std::min(groups * group_, batch_.num_sequences));
}

void BatchWalk::Walk(const Job& job, int64_t first, int64_t last) {
  WalkLongRows(job, first, last);
  Run((last - first + group_ - 1) / group_, [&](int64_t i) {
    const int64_t begin = first + i * group_;
    const int64_t end = std::min(last, begin + group_);
    totals_.With([&](void* totals) {
      kernels_.walk_rows(job, begin, end, LocalScratch(kernels_),
                         long_rows_.empty() ? nullptr : long_rows_.data(),
                         totals);
    });
  });
}

bool BatchWalk::WalkRows(const Job& job, std::span<const int64_t> rows,
                         RowRecord* total, PartialBins* partial,
                         StalenessResult* staleness) {
  Job of_rows = job;
  of_rows.rows = rows.data();
  Walk(of_rows, 0, static_cast<int64_t>(rows.size()));
  totals_.Finish(total, partial, staleness);
  return !stopped_;
}

bool BatchWalk::Finish(const Job& job, RowRecord* total, PartialBins* partial,
                       StalenessResult* staleness) {
  Advance(job, batch_.num_sequences);
  next_group_ = 0;
  totals_.Finish(total, partial, staleness);
  return !stopped_;
}

void BatchWalk::WalkLongRows(const Job& job, int64_t first, int64_t last) {
  if (long_rows_.empty()) return;
  for (int64_t at = first; at < last && !stopped_; ++at) {
    const int64_t i = job.rows == nullptr ? at : job.rows[at];
    const FinishedRow* row = long_rows_[static_cast<size_t>(i)];
    if (row == nullptr) continue;
    WalkLongRow(job, i,
                &finished_[static_cast<size_t>(row - finished_.data())]);
  }
}

void BatchWalk::WalkLongRow(const Job& job, int64_t index, FinishedRow* out) {
  const Row row = RowOf(batch_, index);
  const int64_t segments = row.segments();
  const auto bases_of = [&](int64_t i) {
    return bases_.data() + i * plan_.num_prefixes;
  };
  RowState& state = out->state;
  // The first pass over the row's statistics measures staleness.
  bool counts = job.versions != nullptr;
  const auto with_totals = [&](const auto& walk) {
    if (counts) {
      totals_.With(walk);
    } else {
      walk(nullptr);
    }
  };
  for (const Step& step : *job.cut_up) {
    if (step.rows == StepRows::kFired && state.fired == 0) continue;
    switch (step.kind) {
      case StepKind::kInitialStates:
        std::fill(bases_.begin(), bases_.end(), PrefixBase{0.0, 0.0});
        kernels_.initial_state(job, index, &state);
        break;
      case StepKind::kStatistics:
        Run(segments, [&](int64_t i) {
          with_totals([&](void* totals) {
            kernels_.walk_statistics(
                job, row.span(i), state, bases_of(i), LocalScratch(kernels_),
                &segments_[static_cast<size_t>(i)], totals);
          });
        });
        counts = false;
        break;
      case StepKind::kSettle:
        kernels_.settle_row(job, index, segments_.data(), segments,
                            bases_.data(), out);
        break;
      case StepKind::kOutputs:
        Run(segments, [&](int64_t i) {
          const auto at = static_cast<size_t>(i);
          reasons_[at] = kernels_.walk_outputs(
              job, row.span(i), state, bases_of(i), step.loss_only,
              LocalScratch(kernels_), losses_.empty() ? nullptr : &losses_[at]);
        });
        break;
      case StepKind::kSettleLoss:
        kernels_.settle_loss(job, losses_.data(), segments, out);
        break;
      case StepKind::kBoth:
        Run(segments, [&](int64_t i) {
          const auto at = static_cast<size_t>(i);
          with_totals([&](void* totals) {
            reasons_[at] = kernels_.walk_both(
                job, row.span(i), state, bases_of(i), LocalScratch(kernels_),
                &segments_[at], totals);
          });
        });
        counts = false;
        break;
      case StepKind::kRowRatioLoss:
      case StepKind::kOutputsThenGradient:
        break;  // of rows that one thread walks
    }
    if (stopped_) return;
  }
  if (job.outputs->sequence_reasons == nullptr) return;
  uint32_t all = 0;
  for (int64_t i = 0; i < segments; ++i) {
    all |= reasons_[static_cast<size_t>(i)];
  }
  job.outputs->sequence_reasons[index] = static_cast<uint16_t>(all);
}

}  // namespace counterweight::kernels
