// The bodies of IsaKernels; included by one translation unit per instruction
// set, which has defined COUNTERWEIGHT_ISA.
#ifndef COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_IMPL_H_
#define COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_IMPL_H_

#include "kernels/cpu/isa_kernels.h"
#include "kernels/walk/cpu_lanes.h"
#include "kernels/walk/exact_columns.h"
#include "kernels/walk/lane_totals.h"
#include "kernels/walk/prefix_bases.h"
#include "kernels/walk/row_lanes.h"
#include "kernels/walk/row_ratio_loss.h"
#include "kernels/walk/segment_walk.h"
#include "kernels/walk/staleness_walk.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {
namespace {

struct Scratch {
  TileState<CpuLanes> tile;
  Accumulators<CpuLanes> sums;
  SegmentRecord segments[kMaxShortRowSegments];
  PrefixBase bases[kMaxShortRowSegments][kMaxPrefixes];
  // Rows that have not been settled.
  FinishedRow rows[kRowLanes];
  RowLaneSums row_sums;
};

// A thread's sums of rows.
struct Totals {
  LaneTotals lanes;
  StalenessTotals staleness;
};

// Calls walk(task) for a segment, which adds its tokens by staleness to
// `totals` unless that is null.
template <class Walk>
void walk_with_staleness(const Job& job, const SegmentSpan& span,
                         SegmentTask task, void* totals, Walk walk) {
  if (job.versions == nullptr || totals == nullptr) return walk(task);
  StalenessWalk staleness(*job.versions,
                          &static_cast<Totals*>(totals)->staleness);
  staleness.begin_segment(span.row, job.batch->offsets[span.row], span.begin);
  task.staleness = &staleness;
  walk(task);
  staleness.end_segment();
}

void walk_statistics(const Job& job, const SegmentSpan& span,
                     const RowState& state, const PrefixBase* bases,
                     void* scratch, SegmentRecord* out, void* totals) {
  auto& s = *static_cast<Scratch*>(scratch);
  s.sums.clear(*job.plan);
  walk_with_staleness(
      job, span, {span.begin, span.end, state, bases, job.loss, false}, totals,
      [&](const SegmentTask& task) {
        walk_segment<CpuLanes, true, false>(*job.plan, *job.batch, task,
                                            Outputs{}, s.tile, s.sums);
      });
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
                   void* scratch, SegmentRecord* out, void* totals) {
  auto& s = *static_cast<Scratch*>(scratch);
  s.sums.clear(*job.plan);
  walk_with_staleness(
      job, span, {span.begin, span.end, state, bases, job.loss, false}, totals,
      [&](const SegmentTask& task) {
        walk_segment<CpuLanes, true, true>(*job.plan, *job.batch, task,
                                           *job.outputs, s.tile, s.sums);
      });
  s.sums.fold_lanes(*job.plan, *out);
  FoldedColumns folded(*out);
  settle_segment<CpuLanes, true, true>(*job.plan, folded);
  return CpuLanes::fold_or(s.sums.reasons);
}

void initial_state(const Job& job, int64_t row, RowState* state) {
  state->fired = 0;
  state->weight = 0.0f;
  const LossPlan& loss = job.plan->loss;
  if (loss.active) initial_loss(loss, *job.loss, row, state->loss);
}

// Decides a row after its segments are folded.
void decide(const Job& job, int64_t index, FinishedRow& row) {
  decide_row(*job.plan, *job.loss, index, row.sums, row.state);
  if (job.row_tokens != nullptr) {
    job.row_tokens[index] = row.sums.sums[kColumnTokens];
  }
}

void settle_segments(const Job& job, int64_t index,
                     const SegmentRecord* records, int64_t segments,
                     FinishedRow& out) {
  const Plan& plan = *job.plan;
  clear(plan, out.sums);
  for (int64_t i = 0; i < segments; ++i) extend(plan, out.sums, records[i]);
  add_up(
      plan.token_columns, segments, [&](int64_t i) { return records[i].sums; },
      out.sums.sums);
  if (plan.loss.active) {
    add_up(
        kNumLossColumns, segments,
        [&](int64_t i) { return records[i].loss.sums; }, out.sums.loss.sums);
  }
  decide(job, index, out);
}

void settle_row(const Job& job, int64_t index, const SegmentRecord* records,
                int64_t segments, PrefixBase* bases, FinishedRow* out) {
  find_bases(
      *job.plan, segments, [&](int64_t i) { return records[i].sums; }, bases);
  settle_segments(job, index, records, segments, *out);
}

// Adds up the loss of a row of several segments. at(i): the record of segment
// i. Not inline: most rows have one segment, and its instructions would only
// fill their cache.
template <class At>
[[gnu::noinline]] void take_loss_of(int64_t segments, At at, LossRecord& out) {
  LossRecord all;
  clear_loss(all);
  for (int64_t i = 0; i < segments; ++i) extend_loss(all, at(i));
  add_up(
      kNumLossColumns, segments, [&](int64_t i) { return at(i).sums; },
      all.sums);
  take_loss(all, out);
}

template <class At>
void settle_loss_of(const LossPlan& loss, int64_t segments, At at,
                    FinishedRow& row) {
  if (segments == 1) {
    take_loss(at(0), row.sums.loss);
  } else if (segments > 1) {
    take_loss_of(segments, at, row.sums.loss);
  }
  if (!loss.needs_row_gradient) return;
  row.state.loss.hand_back = hand_back(loss, row.sums.loss, row.state.loss);
}

void settle_loss(const Job& job, const LossRecord* records, int64_t segments,
                 FinishedRow* row) {
  settle_loss_of(
      job.plan->loss, segments,
      [&](int64_t i) -> const LossRecord& { return records[i]; }, *row);
}

// One row of few enough segments, by one thread in order: a running mean goes
// on where the segment before left it, as if the row were one segment.
class ShortRow {
 public:
  ShortRow(const Job& job, int64_t row, Scratch* scratch, FinishedRow* out,
           void* totals)
      : job_(job),
        plan_(*job.plan),
        row_(row),
        begin_(job.batch->offsets[row]),
        end_(job.batch->offsets[row + 1]),
        segments_(SegmentsOf(end_ - begin_)),
        s_(*scratch),
        out_(*out),
        // The only segment's sums are the row's.
        records_(segments_ == 1 ? &out->sums : scratch->segments),
        totals_(totals) {}

  void walk() {
    uint32_t reasons = 0;
    const Step* const end = job_.in_order->end();
    for (const Step* next = job_.in_order->begin(); next < end; ++next) {
      const Step& step = *next;
      if (!is_for_me(step.rows)) continue;
      next += step.replaces;
      switch (step.kind) {
        case StepKind::kInitialStates:
          begin();
          break;
        case StepKind::kStatistics:
          for (int64_t i = 0; i < segments_; ++i) {
            walk_statistics(job_, span(i), out_.state, bases_of(i), &s_,
                            &records_[i], totals_);
            go_on(i);
          }
          totals_ = nullptr;
          break;
        case StepKind::kBoth:
          for (int64_t i = 0; i < segments_; ++i) {
            reasons |= walk_both(job_, span(i), out_.state, bases_of(i), &s_,
                                 &records_[i], totals_);
            go_on(i);
          }
          totals_ = nullptr;
          break;
        case StepKind::kSettle:
          settle();
          break;
        case StepKind::kOutputs:
          reasons = walk_all(step.loss_only);
          break;
        case StepKind::kSettleLoss:
          settle_loss();
          break;
        case StepKind::kRowRatioLoss:
          walk_row_ratio();
          break;
        case StepKind::kOutputsThenGradient:
          reasons = walk_then_gradient();
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

  bool is_for_me(StepRows rows) const {
    switch (rows) {
      case StepRows::kAll:
        return true;
      case StepRows::kFired:
        return out_.state.fired != 0;
      case StepRows::kClean:
        return out_.sums.first_bad == kNoBadToken;
      case StepRows::kOneSegment:
        return segments_ == 1;
    }
    return true;
  }

  uint32_t walk_then_gradient() {
    LossRecord& loss = out_.sums.loss;
    const SegmentTask task{begin_,
                           end_,
                           out_.state,
                           bases_of(0),
                           job_.loss,
                           /*loss_only=*/false,
                           /*leaves_slopes=*/true};
    const uint32_t reasons = walk_task(job_, task, s_, &loss);
    LossRow& state = out_.state.loss;
    state.hand_back = hand_back(plan_.loss, loss, state);
    s_.sums.columns.clear_loss();
    finish_gradient<CpuLanes>(plan_, *job_.batch, task, job_.outputs->gradient,
                              s_.tile, s_.sums);
    loss.sums[kLossGradientSquared] =
        s_.sums.columns.fold_sum(kColumnLoss + kLossGradientSquared);
    return reasons;
  }

  void walk_row_ratio() {
    LaneColumns<CpuLanes>& columns = s_.sums.columns;
    RowRatioLoss walk(plan_, out_.state.loss, s_.tile, s_.sums);
    for (int64_t i = 0; i < segments_; ++i) {
      LossRecord& loss = records_[i].loss;
      columns.clear_loss();
      walk.walk(*job_.batch, span(i).begin, span(i).end, *job_.outputs);
      columns.fold_loss(loss);
      loss.sums[kLossLogRatio] = records_[i].sums[kColumnLogRatio];
      FoldedColumns folded(loss);
      settle_segment<CpuLanes, false, true>(plan_, folded);
    }
    settle_loss();
    double squares[kMaxShortRowSegments];
    for (int64_t i = 0; i < segments_; ++i) {
      columns.clear_loss();
      walk.write_gradient(*job_.batch, span(i).begin, span(i).end,
                          job_.outputs->gradient);
      squares[i] = columns.fold_sum(kColumnLoss + kLossGradientSquared);
    }
    if (segments_ == 0) return;
    out_.sums.loss.sums[kLossGradientSquared] =
        segments_ == 1 ? squares[0] : sum_of(squares, segments_);
  }

  // As take_loss_of().
  [[gnu::noinline]] static double sum_of(const double* addends, int64_t count) {
    ExactSum sum;
    for (int64_t i = 0; i < count; ++i) sum.add(addends[i]);
    return sum.sum();
  }

  void settle_loss() {
    settle_loss_of(
        plan_.loss, segments_,
        [&](int64_t i) -> const LossRecord& { return records_[i].loss; }, out_);
  }

  SegmentSpan span(int64_t i) const {
    const int64_t from = begin_ + i * kSegmentPositions;
    const int64_t to = from + kSegmentPositions;
    return {from, to < end_ ? to : end_, row_};
  }

  PrefixBase* bases_of(int64_t i) {
    return &s_.bases[0][0] + i * plan_.num_prefixes;
  }

  void begin() {
    for (int p = 0; p < plan_.num_prefixes; ++p) {
      bases_of(0)[p] = PrefixBase{0.0, 0.0};
    }
    initial_state(job_, row_, &out_.state);
  }

  // Segment i is walked: finds where the running means of the next one start.
  void go_on(int64_t i) {
    if (i + 1 < segments_) {
      next_bases(plan_, records_[i].sums, bases_of(i), bases_of(i + 1));
    }
  }

  // Every pass over a row's statistics makes its records anew.
  void settle() {
    if (segments_ == 1) {
      decide(job_, row_, out_);
    } else {
      settle_segments(job_, row_, records_, segments_, out_);
    }
  }

  uint32_t walk_all(bool loss_only) {
    uint32_t reasons = 0;
    for (int64_t i = 0; i < segments_; ++i) {
      reasons |= walk_outputs(job_, span(i), out_.state, bases_of(i), loss_only,
                              &s_, &records_[i].loss);
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
  FinishedRow& out_;
  SegmentRecord* const records_;
  void* totals_;  // null after the first pass
};

void begin_totals(const Plan& plan, void* totals) {
  auto& all = *static_cast<Totals*>(totals);
  all.lanes.begin(plan);
  all.staleness.clear();
}

void merge_totals(const Plan& plan, void* into, void* from) {
  auto& all = *static_cast<Totals*>(into);
  auto& others = *static_cast<Totals*>(from);
  all.lanes.merge(plan, others.lanes);
  all.staleness.merge(others.staleness);
}

bool take_staleness(void* totals, StalenessSums* out, StalenessBins* bins) {
  StalenessTotals& all = static_cast<Totals*>(totals)->staleness;
  if (all.is_bad) return false;
  out->measured = 1;
  for (int b = 0; b < kNumStalenessBuckets; ++b) {
    for (int k = 0; k < kBins; ++k) {
      bins[b].log_ratio[k] = all.log_ratio[b].low[k];
      bins[b].k3[k] = all.k3[b].low[k];
    }
    out->buckets[b] = {all.tokens[b], all.log_ratio[b].take(),
                       all.k3[b].take()};
  }
  out->unknown_tokens = all.unknown;
  out->staleness = all.staleness;
  out->max = all.most;
  for (int h = 0; h <= kNumStalenessEdges; ++h) {
    out->histogram[h] = all.histogram[h];
  }
  return true;
}

void take_bins(const Plan& plan, void* totals, const RecordColumns& columns,
               double* out) {
  static_cast<Totals*>(totals)->lanes.take_bins(plan, columns, out);
}

void take_totals(const Plan& plan, void* totals, RowRecord* out) {
  static_cast<Totals*>(totals)->lanes.take(plan, *out);
}

// Rows end together.
void walk_rows(const Job& job, int64_t first, int64_t last, void* scratch,
               const FinishedRow* const* long_rows, void* totals) {
  auto& s = *static_cast<Scratch*>(scratch);
  auto& all = static_cast<Totals*>(totals)->lanes;
  for (int64_t row = first; row < last; row += kRowLanes) {
    const int64_t left = last - row;
    const int count = static_cast<int>(left < kRowLanes ? left : kRowLanes);
    for (int i = 0; i < count; ++i) {
      const int64_t index = job.rows == nullptr ? row + i : job.rows[row + i];
      const FinishedRow* done =
          long_rows == nullptr ? nullptr : long_rows[index];
      if (done != nullptr) {
        s.rows[i] = *done;
      } else {
        ShortRow(job, index, &s, &s.rows[i], totals).walk();
      }
    }
    const RowLanes lanes(s.rows);
    add_rows(*job.plan, lanes, s.row_sums);
    if (job.plan->loss.active) {
      add_loss(job.plan->loss, lanes.sum(kColumnTokens), lanes, s.row_sums);
    }
    all.add(*job.plan, count, s.rows, s.row_sums);
  }
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
  return {name,         sizeof(Scratch), sizeof(Totals), begin_totals,
          merge_totals, take_staleness,  take_bins,      take_totals,
          walk_rows,    walk_statistics, initial_state,  settle_row,
          walk_outputs, walk_both,       settle_loss,    divide,
          k3_of};
}

}  // namespace
}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_CPU_ISA_KERNELS_IMPL_H_
