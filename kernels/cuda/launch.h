// Launchers of the device kernels. Every pointer is device memory; every launch
// goes to `stream` and returns at once.
#ifndef COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_H_
#define COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/batch.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"

namespace counterweight::kernels {

// A segment is [begin, end) of the batch and belongs to `row`.
struct DeviceSegment {
  int64_t begin;
  int64_t end;
  int64_t row;
};

// The segments of a block's rows. Where each row is one segment, the rows'
// bounds suffice.
struct SegmentsView {
  const DeviceSegment* segments;  // null: each row is one
  const int64_t* offsets;         // [rows + 1] positions of the batch

  COUNTERWEIGHT_HD DeviceSegment at(int64_t index) const {
    if (segments != nullptr) return segments[index];
    return {offsets[index], offsets[index + 1], index};
  }
};

// Arguments of the kernels. Rows without tokens have one segment, an empty one.
struct DeviceJob {
  Batch batch;  // device pointers; offsets unused
  // Device pointers. Walks make reasons if sequence_reasons is set, and leave
  // them in `reasons`.
  Outputs outputs;
  int64_t num_segments;
  SegmentsView segments;
  // [num_sequences + 1] first segment of a row; null: each row is one
  const int64_t* row_segments;
  int64_t most_segments;  // of a row
  char* records;          // [num_segments] PackedSegment
  PrefixBase* bases;      // [num_segments][num_prefixes]
  RowState* states;       // [num_sequences]
  char* rows;             // [num_sequences] PackedRow
  // [num_sequences], zero before the walk; null: not wanted
  uint32_t* reasons;
  LossContext loss;      // device pointers
  double* row_tokens;    // [num_sequences], or null: not wanted
  int32_t shared_bytes;  // of a block, at most
  // Walks: no row is settled yet, so `states` are not read.
  bool first_pass;
  // LaunchSettle: makes records of the rows, and adds them to `totals`
  // (row_totals.h). Without totals it stores them in `rows`.
  bool makes_rows;
  double* totals;
  // Nothing was added to the totals yet.
  bool begins_totals;
  // LaunchOutputs and LaunchSettleLoss: leave rows alone where no sequence rule
  // fired.
  bool fired_rows_only;
  // LaunchOutputs: as SegmentTask::loss_only.
  bool loss_only;
};

// The segments of a block's rows, from where the rows lie.
struct SegmentsJob {
  const int64_t* offsets;       // [rows + 1] positions of the batch
  const int64_t* row_segments;  // [rows + 1]
  int64_t rows;
  DeviceSegment* segments;  // [row_segments[rows]]
};

// Loads all kernels for the current device, which takes long where the driver
// has to compile them; an error if this program has no code for it. Stores the
// shared memory that a block of a walk may take from now on, all that the
// device grants. Once for each device, before the launches.
cudaError_t PrepareKernels(int* shared_bytes);

// Its parts.
cudaError_t PrepareRows(int shared_bytes);
cudaError_t PrepareStatistics(int shared_bytes);
cudaError_t PrepareBoth(int shared_bytes);
cudaError_t PrepareOutputs(int shared_bytes);

// Before everything else of a block in which a row has several.
cudaError_t LaunchSegments(const SegmentsJob& job, cudaStream_t stream);

// Statistics of every segment, under the states and bases known so far.
cudaError_t LaunchStatistics(const Plan& plan, const DeviceJob& job,
                             cudaStream_t stream);

// Statistics and outputs at once, the outputs as if no sequence rule fired.
// REQUIRES: a schedule of the plan has kBoth.
cudaError_t LaunchBoth(const Plan& plan, const DeviceJob& job,
                       cudaStream_t stream);

// Computes bases, if a row has several segments, adds those up in place, and
// computes states and the rows' records. Where a guess was wrong reasons begin
// anew. REQUIRES: bases are zero.
cudaError_t LaunchSettle(const Plan& plan, const DeviceJob& job,
                         cudaStream_t stream);

// Outputs and loss of every segment; ORs reasons into job.reasons.
cudaError_t LaunchOutputs(const Plan& plan, const DeviceJob& job,
                          cudaStream_t stream);

// Computes, after a loss pass, the gradient that rows pass to their tokens, and
// their sums. REQUIRES: plan.loss.active, LaunchSettle before it.
cudaError_t LaunchSettleLoss(const Plan& plan, const DeviceJob& job,
                             cudaStream_t stream);

// Adds job.rows to job.totals.
cudaError_t LaunchAddRows(const Plan& plan, const DeviceJob& job,
                          cudaStream_t stream);

// out[i] = the low half of reasons[i], [count].
cudaError_t LaunchNarrow(const uint32_t* reasons, int64_t count, uint16_t* out,
                         cudaStream_t stream);

// weights[i] /= divisor in float64, [count].
cudaError_t LaunchDivide(float* weights, int64_t count, double divisor,
                         cudaStream_t stream);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CUDA_LAUNCH_H_
