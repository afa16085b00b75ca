// Phase 2 of a tile, statistics only: the drift of the plan's drift source.
#ifndef COUNTERWEIGHT_KERNELS_WALK_DRIFT_PHASE_H_
#define COUNTERWEIGHT_KERNELS_WALK_DRIFT_PHASE_H_

#include <type_traits>

#include "kernels/math/exp.h"
#include "kernels/walk/accumulators.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

// The drift's columns that later phases read when a segment is over.
template <class Columns>
struct DriftColumns {
  Columns& columns;

  COUNTERWEIGHT_HD auto& tokens() const { return columns.count(kColumnTokens); }
  COUNTERWEIGHT_HD auto& excess() const { return columns.sum(kColumnExcess); }
  COUNTERWEIGHT_HD auto& lowest() const {
    return columns.low(kExtremumLogRatio);
  }
  COUNTERWEIGHT_HD auto& highest() const {
    return columns.high(kExtremumLogRatio);
  }
};

template <class Columns>
COUNTERWEIGHT_HD DriftColumns<Columns> drift_columns(Columns& columns) {
  return {columns};
}

template <class Lanes>
struct DriftPhase {
  static constexpr int kWidth = Lanes::kWidth;
  using State = TileState<Lanes>;
  using Acc = Accumulators<Lanes>;

  // The tokens alone where metrics are not wanted.
  COUNTERWEIGHT_HD static void run(const Plan& plan, const State& s, Acc& acc) {
    acc.count_each(kColumnTokens, s.steps,
                   [&](int k, int g) COUNTERWEIGHT_INLINE_LAMBDA {
                     return s.mask.vec(k, g);
                   });
    if (!measures<Lanes>(plan)) return;
    const RatioSource source = source_of(plan);
    const TileOf<Lanes>& num = s.input[numerator(source)];
    const TileOf<Lanes>& den = s.input[denominator(source)];
    add_token_sums(plan, s, den, acc);
    // Decisions about whole sequences depend on this sum, and the deviation is
    // what is left of the squares, so each addend is exact.
    acc.add_exact_squares(kColumnLogRatio, kColumnSquared, s.steps,
                          [&](int k, int h) COUNTERWEIGHT_INLINE_LAMBDA {
                            return num.wide(k, h) - den.wide(k, h);
                          });
    if (needs<Lanes>(plan, kNeedPeerSums)) {
      add_probabilities(plan, s, num, den, acc);
    }
  }

  // Turns the histogram's columns into counts of l <= edge.
  template <class Columns>
  COUNTERWEIGHT_HD static void finish(const Plan& plan, Columns& columns) {
    if (!measures<Lanes>(plan)) return;
    for (int e = 0; e < kEdgePairs; ++e) {
      const auto& tokens = columns.count(kColumnTokens);
      auto& below = columns.count(kColumnHistogram + kEdgePairs - 1 - e);
      auto& within = columns.count(right(e));
      for_each_lane<Columns::kWidth>([&](int i) COUNTERWEIGHT_INLINE_LAMBDA {
        const auto both = within.at[i];
        using Count = std::remove_const_t<decltype(both)>;
        const auto left = static_cast<Count>(static_cast<int>(both / kLeft));
        below.at[i] = left;
        within.at[i] = tokens.at[i] - (both - left * kLeft);
      });
    }
  }

 private:
  static constexpr int kEdgePairs = kNumHistogramEdges / 2;
  // Larger than a segment's token count, so that both counts fit one column.
  static constexpr float kLeft = 8192.0f;
  static_assert(kSegmentPositions < 8192);

  static constexpr COUNTERWEIGHT_HD int right(int pair) {
    return kColumnHistogram + kEdgePairs + pair;
  }

  COUNTERWEIGHT_HD static RatioSource source_of(const Plan& plan) {
    return Lanes::source(SourceUse::kDrift, plan.spec.drift_source);
  }

  // Edges of the histogram are pairs -e, e. The column of e adds 1 for l > e
  // and kLeft for l <= -e, until the segment is over. Masked tokens have l = 0
  // and add nothing.
  COUNTERWEIGHT_HD static void add_token_sums(const Plan& plan, const State& s,
                                              const TileOf<Lanes>& den,
                                              Acc& acc) {
    const int source = static_cast<int>(source_of(plan));
    const TileOf<Lanes>& log_ratio = s.log_ratio[source];
    const TileOf<Lanes>& expm1 = s.expm1[source];
    const TileOf<Lanes>& k3s = s.k3[source];
    PassColumns<5, kEdgePairs> columns = {
        {kColumnDenominator, kColumnAbs, kColumnK3, kColumnExcess,
         kColumnExcessSquared},
        {},
        kExtremumLogRatio};
    const Vec highest = splat(plan.safety.expm1_high);
    const Vec lowest = splat(plan.safety.expm1_low);
    Vec edges[kEdgePairs];
    for (int e = 0; e < kEdgePairs; ++e) {
      columns.counts[e] = right(e);
      edges[e] = splat(plan.histogram_edges[kEdgePairs + e]);
    }
    const Vec one = splat(1.0f);
    const Vec left = splat(kLeft);
    acc.collect(columns, s.steps,
                [&](int k, int g, auto& to) COUNTERWEIGHT_INLINE_LAMBDA {
                  const Vec l = log_ratio.vec(k, g);
                  const Vec u = clip(expm1.vec(k, g), lowest, highest);
                  to.sum[0] += den.vec(k, g);
                  to.sum[1] += absolute(l);
                  to.sum[2] += k3s.vec(k, g);
                  to.sum[3] += u;
                  to.sum[4] += u * u;
                  const Reach far = reach(l);
                  const Vec side = far.side(one, left);
                  for (int e = 0; e < kEdgePairs; ++e) {
                    count_where(far.is_beyond(edges[e]), side, to.count[e]);
                  }
                  to.extend_where(s.mask.vec(k, g) != 0.0f, l);
                });
  }

  // p - q = q u where u = p / q - 1 is small: no cancellation.
  COUNTERWEIGHT_HD static void add_probabilities(const Plan& plan,
                                                 const State& s,
                                                 const TileOf<Lanes>& num,
                                                 const TileOf<Lanes>& den,
                                                 Acc& acc) {
    const int source = static_cast<int>(source_of(plan));
    const TileOf<Lanes>& log_ratio = s.log_ratio[source];
    const TileOf<Lanes>& expm1 = s.expm1[source];
    TileOf<Lanes> difference;
    TileOf<Lanes> p_of;
    TileOf<Lanes> q_of;
    for_each_position<kWidth>(s.steps, [&](int k, int i) {
      const float m = s.mask.at[k][i];
      const float p = exp_terms(num.at[k][i]).exp * m;
      const float q = exp_terms(den.at[k][i]).exp * m;
      const bool near = __builtin_fabsf(log_ratio.at[k][i]) < 1.0f;
      p_of.at[k][i] = p;
      q_of.at[k][i] = q;
      difference.at[k][i] =
          __builtin_fabsf(select(near, q * expm1.at[k][i], p - q));
    });
    acc.add_exact_squares(
        kColumnAbsDifference, kColumnSquaredDifference, s.steps,
        [&](int k, int h)
            COUNTERWEIGHT_INLINE_LAMBDA { return difference.wide(k, h); });
    const int columns[] = {kColumnP, kColumnQ, kColumnPSquared, kColumnQSquared,
                           kColumnPQ};
    acc.add(columns, s.steps,
            [&](int k, int g, Vec(&block)[5]) COUNTERWEIGHT_INLINE_LAMBDA {
              const Vec p = p_of.vec(k, g);
              const Vec q = q_of.vec(k, g);
              block[0] += p;
              block[1] += q;
              block[2] += p * p;
              block[3] += q * q;
              block[4] += p * q;
            });
    acc.extend(kExtremumDifference, s.steps, difference, s.mask);
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_DRIFT_PHASE_H_
