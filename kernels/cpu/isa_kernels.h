// The CPU backend's inner functions, compiled once per instruction set. This
// border is plain pointers and PODs: such translation units include no standard
// containers, because an AVX-512 copy of a shared template could win at link
// time and crash older machines.
#ifndef COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_H_
#define COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/batch.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"
#include "kernels/walk/partial_layout.h"
#include "kernels/walk/record_columns.h"
#include "kernels/walk/schedule.h"

namespace counterweight::kernels {

// Rows with more segments are cut up between threads.
inline constexpr int64_t kMaxShortRowSegments = 16;

struct Job {
  const Plan* plan;
  const Batch* batch;
  const Outputs* outputs;
  // Read if the plan has a loss.
  const LossContext* loss;
  // Schedules for rows with their segments in order on one thread, and for rows
  // that are cut up.
  const Schedule* in_order;
  const Schedule* cut_up;
  // [num_sequences] tokens of each row in response_mask; null: not wanted.
  double* row_tokens;
  // Versions to measure; null: none in this walk. `trained` is at most
  // kMostTrained.
  const PolicyVersions* versions;
  // The rows in the order in which they are walked; null: as they lie.
  const int64_t* rows = nullptr;
};

// Versions above this are not compared in 32 bits.
inline constexpr int64_t kMostTrained = INT32_MAX - 1;

// Segment `index` of a row, [begin, end) in the batch.
struct SegmentSpan {
  int64_t begin;
  int64_t end;
  int64_t row;
};

struct IsaKernels {
  const char* name;

  // Bytes of a thread's scratch, aligned to 64.
  size_t scratch_bytes;

  // Bytes of the sums of a batch's rows, or of some of them, aligned to 64.
  size_t totals_bytes;
  // Makes them those of no row, before all else.
  void (*begin_totals)(const Plan& plan, void* totals);
  // Adds the totals of other rows, which must begin anew.
  void (*merge_totals)(const Plan& plan, void* into, void* from);
  // Stores the sums by staleness and their bins, [kNumStalenessBuckets]; false
  // if some version was wrong. Before take_totals().
  bool (*take_staleness)(void* totals, StalenessSums* out, StalenessBins* bins);
  // Stores the bins of sums; see LaneTotals::take_bins.
  void (*take_bins)(const Plan& plan, void* totals,
                    const RecordColumns& columns, double* out);
  // Stores the sums, each rounded once. `totals` must begin anew.
  void (*take_totals)(const Plan& plan, void* totals, RowRecord* out);

  // Computes [first, last) of Job::rows, writes their outputs, and adds them to
  // `totals`. `long_rows` holds the sums of each row with more than
  // kMaxShortRowSegments segments at its index, and null for others; such rows'
  // outputs are left alone.
  void (*walk_rows)(const Job& job, int64_t first, int64_t last, void* scratch,
                    const FinishedRow* const* long_rows, void* totals);

  // Statistics of one segment of a long row. Adds its tokens by staleness to
  // `totals` unless that is null, which it is after a row's first pass.
  void (*walk_statistics)(const Job& job, const SegmentSpan& span,
                          const RowState& state, const PrefixBase* bases,
                          void* scratch, SegmentRecord* out, void* totals);

  // Makes the state of row `row` before its first pass.
  void (*initial_state)(const Job& job, int64_t row, RowState* state);

  // Makes `out` long row `row` after a pass, and finds where each segment's
  // prefixes start. records and bases: [segments], [segments][num_prefixes].
  void (*settle_row)(const Job& job, int64_t row, const SegmentRecord* records,
                     int64_t segments, PrefixBase* bases, FinishedRow* out);

  // Outputs of one segment of a long row, and its loss into *loss; returns the
  // OR of its reasons. loss_only writes nothing.
  uint32_t (*walk_outputs)(const Job& job, const SegmentSpan& span,
                           const RowState& state, const PrefixBase* bases,
                           bool loss_only, void* scratch, LossRecord* loss);

  // Both at once, where Schedule has StepKind::kBoth.
  uint32_t (*walk_both)(const Job& job, const SegmentSpan& span,
                        const RowState& state, const PrefixBase* bases,
                        void* scratch, SegmentRecord* out, void* totals);

  // Takes a long row's loss pass into *row, which settle_row has made, and
  // finds the gradient that its tokens share. records: [segments].
  void (*settle_loss)(const Job& job, const LossRecord* records,
                      int64_t segments, FinishedRow* row);

  // weights[i] /= divisor, in float64.
  void (*divide)(float* weights, int64_t count, double divisor);

  // k3[i] = exp(l) - 1 - l of log_ratios[i]; the two do not overlap.
  void (*k3_of)(const float* log_ratios, int64_t count, float* k3);
};

// Each returns null if the build lacks the instruction set.
const IsaKernels* GenericKernels();
const IsaKernels* V3Kernels();
const IsaKernels* V4Kernels();

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_H_
