// The bodies of IsaKernels; included by one translation unit per instruction
// set, which has defined COUNTERWEIGHT_ISA.
#ifndef COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_IMPL_H_
#define COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_IMPL_H_

#include "kernels/cpu/isa_kernels.h"
#include "kernels/walk/cpu_lanes.h"
#include "kernels/walk/pairwise.h"
#include "kernels/walk/prefix_bases.h"
#include "kernels/walk/row_record.h"
#include "kernels/walk/segment_walk.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

struct Scratch {
  TileState<CpuLanes> tile;
  Accumulators<CpuLanes> sums;
  SegmentRecord segments[kMaxShortRowSegments];
  PrefixBase bases[kMaxShortRowSegments][kMaxPrefixes];
  // 64 levels would do for any row; rows have fewer than 2^40 segments.
  PairwiseFold<SegmentRecord, 40> segment_fold;
  PairwiseFold<RowRecord, 40> row_fold;
};

void walk_statistics(const Job& job, const SegmentSpan& span, RowState state,
                     const PrefixBase* bases, void* scratch,
                     SegmentRecord* out) {
  auto& s = *static_cast<Scratch*>(scratch);
  s.sums.clear(*job.plan);
  const SegmentTask task{span.begin, span.end, state, bases};
  walk_segment<CpuLanes, true, false>(*job.plan, *job.batch, task, Outputs{},
                                      s.tile, s.sums);
  s.sums.fold_lanes(*job.plan, *out);
}

uint32_t walk_outputs(const Job& job, const SegmentSpan& span, RowState state,
                      const PrefixBase* bases, void* scratch) {
  auto& s = *static_cast<Scratch*>(scratch);
  const SegmentTask task{span.begin, span.end, state, bases};
  walk_segment<CpuLanes, false, true>(*job.plan, *job.batch, task, *job.outputs,
                                      s.tile, s.sums);
  return CpuLanes::fold_or(s.sums.reasons);
}

uint32_t walk_both(const Job& job, const SegmentSpan& span, void* scratch,
                   SegmentRecord* out) {
  auto& s = *static_cast<Scratch*>(scratch);
  s.sums.clear(*job.plan);
  const SegmentTask task{span.begin, span.end, RowState{}, nullptr};
  walk_segment<CpuLanes, true, true>(*job.plan, *job.batch, task, *job.outputs,
                                     s.tile, s.sums);
  s.sums.fold_lanes(*job.plan, *out);
  return CpuLanes::fold_or(s.sums.reasons);
}

RowState settle_row(const Plan& plan, const SegmentRecord* records,
                    int64_t segments, PrefixBase* bases, void* scratch,
                    RowRecord* out) {
  auto& s = *static_cast<Scratch*>(scratch);
  find_bases(plan, records, segments, bases);
  s.segment_fold.reset();
  for (int64_t i = 0; i < segments; ++i) {
    s.segment_fold.next() = records[i];
    s.segment_fold.push(plan);
  }
  if (segments == 0) {
    clear(plan, s.segment_fold.next());
    s.segment_fold.push(plan);
  }
  SegmentRecord& row = s.segment_fold.finish(plan);
  const RowState state = decide_row(plan, row);
  if (out != nullptr) make_row_record(plan, row, state, *out);
  return state;
}

bool wants_tokens(const Outputs& outputs) {
  return outputs.weights != nullptr || outputs.keep_mask != nullptr ||
         outputs.token_reasons != nullptr ||
         outputs.sequence_reasons != nullptr;
}

void walk_short_row(const Job& job, int64_t row, Scratch& s, RowRecord* out) {
  const Plan& plan = *job.plan;
  const int64_t begin = job.batch->offsets[row];
  const int64_t end = job.batch->offsets[row + 1];
  const int64_t segments = SegmentsOf(end - begin);
  const auto span = [&](int64_t i) {
    const int64_t from = begin + i * kSegmentPositions;
    const int64_t to = from + kSegmentPositions;
    return SegmentSpan{from, to < end ? to : end};
  };
  PrefixBase* bases = &s.bases[0][0];
  const auto bases_of = [&](int64_t i) {
    return bases + i * plan.num_prefixes;
  };
  uint32_t reasons = 0;
  const int passes = segments > 1 ? plan.passes : plan.single_segment_passes;
  // One pass is enough unless there are row weights or, which is rare, a
  // sequence rule turns out to fire.
  const bool guesses = passes == 1 && plan.num_prefixes == 0 &&
                       !IsSequenceLevel(plan.weight.spec.level);
  if (guesses) {
    for (int64_t i = 0; i < segments; ++i) {
      reasons |= walk_both(job, span(i), &s, &s.segments[i]);
    }
    const RowState state =
        settle_row(plan, s.segments, segments, bases, &s, out);
    if (state.fired != 0) {
      reasons = 0;
      for (int64_t i = 0; i < segments; ++i) {
        reasons |= walk_outputs(job, span(i), state, nullptr, &s);
      }
    }
  } else {
    for (int64_t i = 0; i < segments * plan.num_prefixes; ++i) {
      bases[i] = PrefixBase{0.0, 0.0};
    }
    RowState state{0, 0.0f};
    for (int pass = 0; pass < passes; ++pass) {
      for (int64_t i = 0; i < segments; ++i) {
        walk_statistics(job, span(i), state, bases_of(i), &s, &s.segments[i]);
      }
      state = settle_row(plan, s.segments, segments, bases, &s,
                         pass + 1 == passes ? out : nullptr);
    }
    for (int64_t i = 0; wants_tokens(*job.outputs) && i < segments; ++i) {
      reasons |= walk_outputs(job, span(i), state, bases_of(i), &s);
    }
  }
  if (job.outputs->sequence_reasons != nullptr) {
    job.outputs->sequence_reasons[row] = static_cast<uint16_t>(reasons);
  }
}

void walk_rows(const Job& job, int64_t first, int64_t last, void* scratch,
               const RowRecord* const* long_rows, RowRecord* out) {
  auto& s = *static_cast<Scratch*>(scratch);
  s.row_fold.reset();
  for (int64_t row = first; row < last; ++row) {
    const RowRecord* done =
        long_rows == nullptr ? nullptr : long_rows[row - first];
    if (done != nullptr) {
      s.row_fold.next() = *done;
    } else {
      walk_short_row(job, row, s, &s.row_fold.next());
    }
    s.row_fold.push(*job.plan);
  }
  *out = s.row_fold.finish(*job.plan);
}

void fold_rows(const Plan& plan, const RowRecord* records, int64_t count,
               void* scratch, RowRecord* out) {
  auto& s = *static_cast<Scratch*>(scratch);
  s.row_fold.reset();
  for (int64_t i = 0; i < count; ++i) {
    s.row_fold.next() = records[i];
    s.row_fold.push(plan);
  }
  *out = s.row_fold.finish(plan);
}

void divide(float* weights, int64_t count, double divisor) {
  COUNTERWEIGHT_IVDEP
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = static_cast<float>(static_cast<double>(weights[i]) / divisor);
  }
}

constexpr IsaKernels MakeKernels(const char* name) {
  return {name,       sizeof(Scratch), walk_rows, walk_statistics,
          settle_row, walk_outputs,    fold_rows, divide};
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_IMPL_H_
