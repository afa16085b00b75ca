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
  LossRecord losses[kMaxShortRowSegments];
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
  const SegmentTask task{span.begin, span.end, state, bases, job.loss, false};
  walk_segment<CpuLanes, true, false>(*job.plan, *job.batch, task, Outputs{},
                                      s.tile, s.sums);
  s.sums.fold_lanes(*job.plan, *out);
  FoldedColumns folded(*out);
  settle_segment<CpuLanes, true, false>(*job.plan, folded);
}

uint32_t walk_task(const Job& job, const SegmentTask& task, Scratch& s,
                   LossRecord* loss) {
  const bool has_loss = job.plan->loss.active;
  if (has_loss) s.sums.columns.clear_loss();
  walk_segment<CpuLanes, false, true>(*job.plan, *job.batch, task,
                                      task.loss_only ? Outputs{} : *job.outputs,
                                      s.tile, s.sums);
  if (has_loss) {
    s.sums.columns.fold_loss(*loss);
    FoldedColumns folded(*loss);
    settle_segment<CpuLanes, false, true>(*job.plan, folded);
  }
  return CpuLanes::fold_or(s.sums.reasons);
}

uint32_t walk_outputs(const Job& job, const SegmentSpan& span,
                      const RowState& state, const PrefixBase* bases,
                      bool loss_only, void* scratch, LossRecord* loss) {
  const SegmentTask task{span.begin, span.end, state,
                         bases,      job.loss, loss_only};
  return walk_task(job, task, *static_cast<Scratch*>(scratch), loss);
}

uint32_t walk_both(const Job& job, const SegmentSpan& span,
                   const RowState& state, const PrefixBase* bases,
                   void* scratch, SegmentRecord* out) {
  auto& s = *static_cast<Scratch*>(scratch);
  s.sums.clear(*job.plan);
  const SegmentTask task{span.begin, span.end, state, bases, job.loss, false};
  walk_segment<CpuLanes, true, true>(*job.plan, *job.batch, task, *job.outputs,
                                     s.tile, s.sums);
  s.sums.fold_lanes(*job.plan, *out);
  FoldedColumns folded(*out);
  settle_segment<CpuLanes, true, true>(*job.plan, folded);
  return CpuLanes::fold_or(s.sums.reasons);
}

RowState initial_state(const Job& job, int64_t row) {
  return {0, 0.0f, initial_loss(job.plan->loss, *job.loss, row)};
}

// Decides a row whose segments are folded; `row` is not needed after.
RowState settle_folded(const Job& job, int64_t index, SegmentRecord& row,
                       RowRecord* out) {
  const Plan& plan = *job.plan;
  const RowState state = decide_row(plan, *job.loss, index, row);
  if (job.row_tokens != nullptr) {
    job.row_tokens[index] = row.sums[kColumnTokens];
  }
  if (out != nullptr) make_row_record(plan, row, state, *out);
  return state;
}

RowState settle_segments(const Job& job, int64_t index,
                         const SegmentRecord* records, int64_t segments,
                         Scratch& s, RowRecord* out) {
  const Plan& plan = *job.plan;
  s.segment_fold.reset();
  for (int64_t i = 0; i < segments; ++i) {
    s.segment_fold.next() = records[i];
    s.segment_fold.push(plan);
  }
  if (segments == 0) {
    clear(plan, s.segment_fold.next());
    s.segment_fold.push(plan);
  }
  return settle_folded(job, index, s.segment_fold.finish(plan), out);
}

RowState settle_row(const Job& job, int64_t index, const SegmentRecord* records,
                    int64_t segments, PrefixBase* bases, void* scratch,
                    RowRecord* out) {
  find_bases(
      *job.plan, segments, [&](int64_t i) { return records[i].sums; }, bases);
  return settle_segments(job, index, records, segments,
                         *static_cast<Scratch*>(scratch), out);
}

void settle_loss(const Job& job, LossRecord* records, int64_t segments,
                 RowState* state, RowRecord* out) {
  const LossPlan& loss = job.plan->loss;
  LossRecord nothing;
  clear_loss(nothing);
  LossRecord& row = segments > 0 ? records[0] : nothing;
  fold_loss_segments(segments,
                     [&](int64_t i) -> LossRecord& { return records[i]; });
  take_statistics(*out, row);
  if (loss.hands_back) {
    state->loss.hand_back = hand_back(loss, row, state->loss);
  }
  add_loss(loss, out->token_sums[kColumnTokens], state->loss, row, *out);
}

// One row of few enough segments, by one thread in order: a running mean goes
// on where the segment before left it, as if the row were one segment.
class ShortRow {
 public:
  ShortRow(const Job& job, int64_t row, Scratch* scratch)
      : job_(job),
        plan_(*job.plan),
        row_(row),
        begin_(job.batch->offsets[row]),
        end_(job.batch->offsets[row + 1]),
        segments_(SegmentsOf(end_ - begin_)),
        s_(*scratch) {}

  void walk(RowRecord* out) {
    uint32_t reasons = 0;
    for (const Step& step : *job_.in_order) {
      if (step.fired_rows_only && state_.fired == 0) continue;
      switch (step.kind) {
        case StepKind::kInitialStates:
          begin();
          break;
        case StepKind::kStatistics:
          for (int64_t i = 0; i < segments_; ++i) {
            walk_statistics(job_, span(i), state_, bases_of(i), &s_,
                            &s_.segments[i]);
            go_on(i);
          }
          break;
        case StepKind::kBoth:
          for (int64_t i = 0; i < segments_; ++i) {
            reasons |= walk_both(job_, span(i), state_, bases_of(i), &s_,
                                 &s_.segments[i]);
            go_on(i);
          }
          break;
        case StepKind::kSettle:
          state_ = settle(step.is_last ? out : nullptr);
          break;
        case StepKind::kOutputs:
          if (step.loss_only && can_leave_slopes()) {
            reasons = walk_then_hand_back(out);
            explain(reasons);
            return;
          }
          reasons = walk_all(step.loss_only);
          break;
        case StepKind::kSettleLoss:
          settle_loss(job_, s_.losses, segments_, &state_, out);
          break;
      }
    }
    explain(reasons);
  }

 private:
  void explain(uint32_t reasons) {
    if (job_.outputs->sequence_reasons == nullptr) return;
    job_.outputs->sequence_reasons[row_] = static_cast<uint16_t>(reasons);
  }

  // The gradient alone waits for what the row hands back, and the mask is all
  // that it needs beside slopes.
  bool can_leave_slopes() const {
    const LossPlan& loss = plan_.loss;
    const bool over_mask =
        plan_.spec.non_finite != NonFinitePolicy::kDrop &&
        (loss.spec.over != TokenSet::kKept || plan_.spec.num_rules == 0);
    return segments_ == 1 && over_mask && !loss.has_kl &&
           job_.outputs->gradient != nullptr;
  }

  // Stands for the schedule's last steps, which walk once for the row's slope
  // and once more for the outputs.
  uint32_t walk_then_hand_back(RowRecord* out) {
    LossRecord& loss = s_.losses[0];
    SegmentTask task{begin_,
                     end_,
                     state_,
                     bases_of(0),
                     job_.loss,
                     /*loss_only=*/false,
                     /*leaves_slopes=*/true};
    const uint32_t reasons = walk_task(job_, task, s_, &loss);
    settle_loss(job_, &loss, 1, &state_, out);
    task.row = state_;
    s_.sums.columns.clear_loss();
    finish_gradient<CpuLanes>(plan_, *job_.batch, task, job_.outputs->gradient,
                              s_.tile, s_.sums);
    LossRecord squares;
    s_.sums.columns.fold_loss(squares);
    loss.sums[kLossGradientSquared] = squares.sums[kLossGradientSquared];
    settle_loss(job_, &loss, 1, &state_, out);
    return reasons;
  }

  SegmentSpan span(int64_t i) const {
    const int64_t from = begin_ + i * kSegmentPositions;
    const int64_t to = from + kSegmentPositions;
    return {from, to < end_ ? to : end_};
  }

  PrefixBase* bases_of(int64_t i) {
    return &s_.bases[0][0] + i * plan_.num_prefixes;
  }

  void begin() {
    for (int p = 0; p < plan_.num_prefixes; ++p) {
      bases_of(0)[p] = PrefixBase{0.0, 0.0};
    }
    state_ = initial_state(job_, row_);
  }

  // Segment i is walked: finds where the running means of the next one start.
  void go_on(int64_t i) {
    if (i + 1 < segments_) {
      next_bases(plan_, s_.segments[i].sums, bases_of(i), bases_of(i + 1));
    }
  }

  RowState settle(RowRecord* out) {
    // Every pass over a row's statistics makes its records anew, so that the
    // only segment needs no copy.
    if (segments_ == 1) {
      return settle_folded(job_, row_, s_.segments[0], out);
    }
    return settle_segments(job_, row_, s_.segments, segments_, s_, out);
  }

  uint32_t walk_all(bool loss_only) {
    uint32_t reasons = 0;
    for (int64_t i = 0; i < segments_; ++i) {
      reasons |= walk_outputs(job_, span(i), state_, bases_of(i), loss_only,
                              &s_, &s_.losses[i]);
    }
    return reasons;
  }

  const Job& job_;
  const Plan& plan_;
  const int64_t row_;
  const int64_t begin_;
  const int64_t end_;
  const int64_t segments_;
  Scratch& s_;
  RowState state_{};
};

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
      ShortRow(job, row, &s).walk(&s.row_fold.next());
    }
    s.row_fold.push(*job.plan);
  }
  *out = s.row_fold.finish(*job.plan);
}

void fold_rows(const Plan& plan, RowRecord& into, const RowRecord& from) {
  fold(plan, into, from);
}

void divide(float* weights, int64_t count, double divisor) {
  COUNTERWEIGHT_IVDEP
  for (int64_t i = 0; i < count; ++i) {
    weights[i] = static_cast<float>(static_cast<double>(weights[i]) / divisor);
  }
}

void k3_of(const float* log_ratios, int64_t count, float* k3) {
  COUNTERWEIGHT_IVDEP
  for (int64_t i = 0; i < count; ++i) k3[i] = exp_terms(log_ratios[i]).k3;
}

constexpr IsaKernels MakeKernels(const char* name) {
  return {name,          sizeof(Scratch), walk_rows,    walk_statistics,
          initial_state, settle_row,      walk_outputs, walk_both,
          settle_loss,   fold_rows,       divide,       k3_of};
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_IMPL_H_
