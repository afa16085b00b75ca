// One segment of one row, tile by tile.
#ifndef COUNTERWEIGHT_KERNELS_WALK_SEGMENT_WALK_H_
#define COUNTERWEIGHT_KERNELS_WALK_SEGMENT_WALK_H_

#include "kernels/tile/tile_state.h"
#include "kernels/walk/accumulators.h"
#include "kernels/walk/drift_phase.h"
#include "kernels/walk/loss_phase.h"
#include "kernels/walk/loss_statistics.h"
#include "kernels/walk/ratio_phase.h"
#include "kernels/walk/rule_phase.h"
#include "kernels/walk/staleness_walk.h"
#include "kernels/walk/weight_phase.h"
#ifndef COUNTERWEIGHT_ONE_LANE
#include "kernels/walk/weights_alone.h"
#endif

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// Inputs of a segment's walk.
struct SegmentTask {
  int64_t begin;  // positions of the batch
  int64_t end;
  const RowState& row;
  // [plan.num_prefixes], or null: this is the row's first segment.
  const PrefixBase* bases;
  // Read if the plan has a loss.
  const LossContext* loss;
  // The walk of outputs finds only what hand_back() needs of the loss.
  bool loss_only;
  // The walk of outputs leaves slopes where the gradient belongs, and their
  // squares aside: finish_gradient() is next. For one thread that holds all
  // lanes.
  bool leaves_slopes = false;
  // Takes the tokens by staleness; null: not in this walk. On the CPU.
  StalenessWalk* staleness = nullptr;
};

template <class Lanes>
COUNTERWEIGHT_HD void scale_advantages(double scale, TileState<Lanes>& s) {
  constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);
  constexpr int kHalves = kVecLanes / kWideLanes;
  TileOf<Lanes>& a = s.input[kAdvantages];
  for_each_group<Lanes::kWidth>(
      s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
        a.set(k, g, narrowed([&](int h) COUNTERWEIGHT_INLINE_LAMBDA {
                return a.wide(k, g * kHalves + h) * scale;
              }));
      });
}

template <class Lanes>
COUNTERWEIGHT_HD void set_advantages(double advantage, TileState<Lanes>& s) {
  constexpr int kAdvantages = static_cast<int>(InputRole::kAdvantages);
  const Vec a = splat(static_cast<float>(advantage));
  for_each_group<Lanes::kWidth>(
      s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
        const Vec counts = s.mask.vec(k, g);
        s.input[kAdvantages].set(k, g, counts != 0.0f ? a : Vec{});
      });
}

// Writes the values of Outputs::weights into s.weight. Without a loss the
// weights are divided by the normalizer when the batch is over.
template <class Lanes>
COUNTERWEIGHT_HD void finish_weights(const Plan& plan, const SegmentTask& task,
                                     TileState<Lanes>& s) {
  constexpr int kWidth = Lanes::kWidth;
  if (!needs<Lanes>(plan, kAnyTokenWeights)) {
    const bool by_row = needs<Lanes>(plan, kNeedRowWeights);
    const float w = by_row ? task.row.weight : 1.0f;
    for_each_group<kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          s.weight.set(k, g, s.mask.vec(k, g) != 0.0f ? splat(w) : Vec{});
        });
  }
  if (needs<Lanes>(plan, kNeedZeroing)) {
    for_each_group<kWidth>(
        s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
          const Vec w = s.weight.vec(k, g);
          s.weight.set(k, g, s.zeroed.vec(k, g) != 0.0f ? Vec{} : w);
        });
  }
  if (!may_weigh<Lanes>() || !needs<Lanes>(plan, kNeedLoss)) return;
  if (task.loss->normalizer == 1.0) return;
  const double normalizer = task.loss->normalizer;
  constexpr int kHalves = kVecLanes / kWideLanes;
  for_each_group<kWidth>(
      s.steps, [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
        s.weight.set(k, g, narrowed([&](int h) COUNTERWEIGHT_INLINE_LAMBDA {
                       return s.weight.wide(k, g * kHalves + h) / normalizer;
                     }));
      });
}

// One tile, of s.count positions from s.position.
template <class Lanes, bool kStats, bool kOutput>
COUNTERWEIGHT_HD void walk_tile(const Plan& plan, const Batch& batch,
                                const SegmentTask& task, const Outputs& outputs,
                                TileState<Lanes>& s, Accumulators<Lanes>& acc) {
  constexpr int kWidth = Lanes::kWidth;
  using Weights = WeightPhase<Lanes, kStats>;
  const bool has_loss = needs<Lanes>(plan, kNeedLoss);
  const bool explains =
      kOutput && Lanes::may(kNeedReasons) &&
      (outputs.token_reasons != nullptr || outputs.sequence_reasons != nullptr);
#ifndef COUNTERWEIGHT_ONE_LANE
  if constexpr (kStats && kOutput && kWidth == kLanes) {
    if (plan.weights_alone && !explains && task.staleness == nullptr &&
        WeightsAlone::run(plan, batch, outputs, s, acc)) {
      return;
    }
  }
#endif
  if (explains) {
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      s.reasons.at[k][i] = Lanes::reasons_ahead(s, k);
    });
  }
  const uint32_t exps =
      (kStats ? plan.statistics_exps : 0u) | (kOutput ? plan.output_exps : 0u);
  RatioPhase<Lanes>::run(plan, batch, exps, s, acc);
  if (needs<Lanes>(plan, kNeedRowAdvantages)) {
    scale_advantages(task.row.loss.advantage, s);
  }
  if (kStats) DriftPhase<Lanes>::run(plan, s, acc);
#ifndef COUNTERWEIGHT_ONE_LANE
  if constexpr (kStats && Lanes::kWidth == kLanes) {
    if (task.staleness != nullptr) {
      task.staleness->add_tile(s, plan.spec.drift_source);
    }
  }
#endif
  Weights::by_tokens(plan, s, acc);
  const int rules = Lanes::may(kNeedRules) ? plan.spec.num_rules : 0;
  Lanes::for_each_rule(rules, [&](int r) COUNTERWEIGHT_INLINE_LAMBDA {
    if (r == plan.weight.spec.after_rule) Weights::aggregate(plan, s, acc);
    RulePhase<Lanes, kStats, kOutput>::run(plan, r, task.row.fired, explains, s,
                                           acc);
  });
  if (rules == plan.weight.spec.after_rule) Weights::aggregate(plan, s, acc);
  Weights::finish(plan, s, acc);
  if (kStats && needs<Lanes>(plan, kLossStatistics)) {
    LossStatistics<Lanes>::run(plan, *task.loss, s, acc);
  }
  if (!kOutput) return;
  const bool loss_weighs =
      may_weigh<Lanes>() && has_loss && plan.loss.weighs_tokens;
  if (outputs.weights != nullptr || loss_weighs) {
    finish_weights(plan, task, s);
  }
  Lanes::store(s.weight, s, outputs.weights);
  if (needs<Lanes>(plan, kNeedMeanAdvantages)) {
    set_advantages(task.row.loss.advantage, s);
  }
  if (has_loss) {
    LossPhase<Lanes>::run(plan, batch, *task.loss, task.row, kStats,
                          task.loss_only, task.leaves_slopes, s, acc,
                          outputs.gradient);
  }
  Lanes::store(s.kept, s, outputs.keep_mask);
  if (!explains) return;
  for_each_position<kWidth>(
      s.steps, [&](int k, int i) { acc.reasons.at[i] |= s.reasons.at[k][i]; });
  Lanes::store(s.reasons, s, outputs.token_reasons);
}

// kStats: fills `acc`, which the caller has cleared; settle_segment() is next.
// kOutput: writes `outputs`, leaves the segment's reasons in acc.reasons, and
// adds the loss to `acc`; the caller has cleared its columns of the loss.
// Both at once where outputs depend on no sum (Plan::single_pass), or as a
// guess that no sequence rule fires.
template <class Lanes, bool kStats, bool kOutput>
COUNTERWEIGHT_HD void walk_segment(const Plan& plan, const Batch& batch,
                                   const SegmentTask& task,
                                   const Outputs& outputs, TileState<Lanes>& s,
                                   Accumulators<Lanes>& acc) {
  constexpr int kPositions = Lanes::kTileSteps * kLanes;
  constexpr int kAskedPositions = 2 * kLanes;
  const int prefixes = Lanes::may(kNeedPrefixes) ? plan.num_prefixes : 0;
  for (int p = 0; p < prefixes; ++p) {
    acc.carry[p] = task.bases != nullptr ? task.bases[p] : PrefixBase{0.0, 0.0};
  }
  if (kOutput) {
    for_each_lane<Lanes::kWidth>([&](int i) { acc.reasons.at[i] = 0; });
  }
  if constexpr (Lanes::kReadsAhead) {
    Lanes::read_first(batch, task.begin, task.end, s.ahead);
  }
  for (int64_t begin = task.begin; begin < task.end; begin += kTilePositions) {
    const int count = static_cast<int>(
        task.end - begin < kTilePositions ? task.end - begin : kTilePositions);
    if constexpr (Lanes::kReadsAhead) {
      Lanes::read_ahead(plan, batch, begin, task.end, s.ahead);
      RatioPhase<Lanes>::admit(plan, begin, s.ahead, acc);
    }
    COUNTERWEIGHT_UNROLL
    for (int part = 0; part < kTilePositions / kPositions; ++part) {
      const int left = count - part * kPositions;
      // Walking an empty tile costs less than a check before each.
      const bool asks = part * kPositions % kAskedPositions == 0;
      if (asks && left <= 0) break;
      s.part = part;
      s.position = begin + part * kPositions;
      s.count = left < kPositions ? left : kPositions;
      s.steps = Lanes::steps(s.count);
      walk_tile<Lanes, kStats, kOutput>(plan, batch, task, outputs, s, acc);
    }
    acc.columns.end_block();
  }
  acc.columns.end_segment();
}

// Turns the slopes that a walk left into the gradient, once the row's share of
// it is known, and adds up its squares. REQUIRES: the plan hands back, has no
// KL penalty, and its loss is over all tokens of the batch's mask.
template <class Lanes>
COUNTERWEIGHT_HD void finish_gradient(const Plan& plan, const Batch& batch,
                                      const SegmentTask& task, float* gradient,
                                      TileState<Lanes>& s,
                                      Accumulators<Lanes>& acc) {
  static_assert(!Lanes::kReadsAhead && Lanes::kTileSteps == kSteps);
  for (int64_t begin = task.begin; begin < task.end; begin += kTilePositions) {
    const int64_t left = task.end - begin;
    s.position = begin;
    s.count = static_cast<int>(left < kTilePositions ? left : kTilePositions);
    s.steps = Lanes::steps(s.count);
    Lanes::load_mask(batch.response_mask, s.position, s.count, s.mask);
    s.kept = s.mask;
    LossPhase<Lanes>::finish_slopes(plan, task.row, s, acc, gradient);
  }
}

// Makes the sums of a walked segment that follow from others, in its lanes or
// after they are folded. Columns has LaneColumns' sum(), count(), low() and
// high().
template <class Lanes, bool kStats, bool kOutput, class Columns>
COUNTERWEIGHT_HD void settle_segment(const Plan& plan, Columns& columns) {
  if (kStats) DriftPhase<Lanes>::finish(plan, columns);
  const auto drift = drift_columns(columns);
  WeightPhase<Lanes, kStats>::finish_segment(plan, drift, columns);
  RulePhase<Lanes, kStats, kOutput>::finish(plan, drift, columns);
  if (kOutput && needs<Lanes>(plan, kNeedLoss)) {
    LossSumsPhase<Lanes>::finish(plan, columns);
  }
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_SEGMENT_WALK_H_
