// The body of Passes::sum_drift; included by passes_impl.h alone.
//
// Token t of a row is of lane t mod 16, so that no bit depends on the width of
// a register. Causes are float64 throughout; buckets are float32 over up to 256
// tokens, which are one chunk, and float64 over chunks.
#ifndef COUNTERWEIGHT_KERNELS_DOCTOR_DRIFT_PASS_IMPL_H_
#define COUNTERWEIGHT_KERNELS_DOCTOR_DRIFT_PASS_IMPL_H_

#include <cstdint>
#include <utility>

#include "kernels/doctor/drift_columns.h"
#include "kernels/doctor/lane_fold.h"
#include "kernels/doctor/passes.h"
#include "kernels/math/exact_sum.h"
#include "kernels/math/exp.h"
#include "kernels/tile/tile.h"
#include "kernels/walk/exact_columns.h"

namespace counterweight::kernels::doctor {
inline namespace COUNTERWEIGHT_ISA {

inline constexpr int kChunk = 256;

// u and k3 of a log ratio.
struct DriftTerms {
  WideVec u;
  WideVec k3;
};

// For |r| below kNear, which nearly all are: a Taylor series of k3, so that it
// is accurate for tiny r too. Its first omitted term is 2e-13 of the sum.
inline constexpr double kNear = 0.25;
COUNTERWEIGHT_HD DriftTerms near_terms(WideVec r) {
  WideVec q = splat_wide(1.0 / 3628800.0);  // 1/10!
  q = fused(q, r, splat_wide(1.0 / 362880.0));
  q = fused(q, r, splat_wide(1.0 / 40320.0));
  q = fused(q, r, splat_wide(1.0 / 5040.0));
  q = fused(q, r, splat_wide(1.0 / 720.0));
  q = fused(q, r, splat_wide(1.0 / 120.0));
  q = fused(q, r, splat_wide(1.0 / 24.0));
  q = fused(q, r, splat_wide(1.0 / 6.0));
  q = fused(q, r, splat_wide(0.5));
  const WideVec k3 = r * r * q;
  return {r + k3, k3};
}

// For any r, which is cut in place.
COUNTERWEIGHT_HD DriftTerms far_terms(WideVec& r) {
  const WideVec most = splat_wide(kMostLogRatio);
  const WideVec raised = r > -most ? r : -most;
  r = raised < most ? raised : most;
  const DriftTerms near = near_terms(r);
  const auto is_near = below(kNear, r);
  const WideVec far = exp_terms64(r).expm1;
  return {is_near ? near.u : far, is_near ? near.k3 : far - r};
}

COUNTERWEIGHT_HD void store_rounded(WideVec x, float* to) {
#if defined(__AVX512F__)
  _mm256_storeu_ps(to, _mm512_maskz_cvtpd_ps(0xff, x));
#elif defined(__AVX2__)
  _mm_storeu_ps(to, _mm256_cvtpd_ps(x));
#else
  store(__builtin_convertvector(x, HalfVec), to);
#endif
}

// Sums over a row's lanes of what needs no bucket.
struct TermLanes {
  static constexpr int kCount = kLaterLogRatio + 1;
  double at[kCount][kPassLanes] = {};

  // The sums of column k, by halving. Changes the lanes.
  double sum(int k) {
    for (int half = kPassLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) at[k][i] += at[k][i + half];
    }
    return at[k][0];
  }
};

// The tokens of a chunk; what fills up to whole lanes is 0.
struct COUNTERWEIGHT_ALIGNED DriftChunk {
  float copies[kMostStreams][kChunk];
  float log_ratio[kChunk];
  float k3[kChunk];
};

// n: a multiple of kPassLanes.
template <bool kHasThird>
void find_terms(const float* const* streams, int n, TermLanes* lanes,
                DriftChunk* chunk) {
  for (int lane = 0; lane < kPassLanes; lane += kWideLanes) {
    WideVec sums[TermLanes::kCount];
    for (int k = 0; k < TermLanes::kCount; ++k) {
      sums[k] = load<WideVec>(&lanes->at[k][lane]);
    }
    for (int i = lane; i < n; i += kPassLanes) {
      const WideVec y = widened(streams[1] + i);
      WideVec first = y - widened(streams[0] + i), later{};
      if constexpr (kHasThird) later = widened(streams[2] + i) - y;
      DriftTerms terms, more{};
      if (!any_of((below(kNear, first) & below(kNear, later)) == 0)) {
        terms = near_terms(first);
        if constexpr (kHasThird) more = near_terms(later);
      } else {
        terms = far_terms(first);
        if constexpr (kHasThird) more = far_terms(later);
      }
      WideVec l = first;
      sums[kFirstK3] += terms.k3;
      sums[kFirstLogRatio] += first;
      if constexpr (kHasThird) {
        const WideVec both = terms.u * more.u;
        sums[kLaterK3] += more.k3;
        sums[kInteraction] += both;
        sums[kLaterLogRatio] += later;
        l += later;
        terms.k3 = (terms.k3 + more.k3) + both;
      }
      store_rounded(l, chunk->log_ratio + i);
      store_rounded(terms.k3, chunk->k3 + i);
    }
    for (int k = 0; k < TermLanes::kCount; ++k) {
      store(sums[k], &lanes->at[k][lane]);
    }
  }
}

// Where a token's number lies: at or above edge b of the magnitudes, and above
// edge b of the log ratios.
struct Magnitudes {
  static constexpr int kCount = kNumMagnitudes;
  COUNTERWEIGHT_HD static auto reaches(Vec x, int edge) {
    return x <= splat(-kMagnitudeEdges[edge]);
  }
};
struct LogRatios {
  static constexpr int kCount = kNumLogRatios;
  COUNTERWEIGHT_HD static auto reaches(Vec l, int edge) {
    return l > splat(kHistogramEdges[edge]);
  }
};

// Tokens, sums of l and of k3 of a chunk's buckets.
template <int kCount>
struct BucketSums {
  int32_t tokens[FoldedCount(kCount)];
  float sums[FoldedCount(2 * kCount)];

  float log_ratio(int b) const { return sums[b]; }
  float k3(int b) const { return sums[kCount + b]; }
};

// Buckets kFirst to kFirst + kGroup - 1: few enough for their sums to lie in
// registers.
template <class Key, int kFirst, int kGroup>
void sum_group(const float* key, const DriftChunk& chunk, int begin, int end,
               LanesOf<BitsVec>* tokens, LanesOf<Vec>* sums) {
  for (int part = 0; part < kLaneParts; ++part) {
    BitsVec count[kGroup] = {};
    Vec log_ratio[kGroup] = {}, k3[kGroup] = {};
    for (int i = begin + part * kVecLanes; i < end; i += kPassLanes) {
      const Vec x = load<Vec>(key + i);
      const Vec l = load<Vec>(chunk.log_ratio + i);
      const Vec more = load<Vec>(chunk.k3 + i);
      BitsVec is_reached[kGroup + 1];
      unrolled<kGroup + 1>([&](int b) COUNTERWEIGHT_INLINE_LAMBDA {
        if (kFirst + b == 0) {
          is_reached[b] = BitsVec{} == 0;
        } else if (kFirst + b == Key::kCount) {
          is_reached[b] = BitsVec{};
        } else {
          is_reached[b] = Key::reaches(x, kFirst + b - 1);
        }
      });
      unrolled<kGroup>([&](int b) COUNTERWEIGHT_INLINE_LAMBDA {
        const BitsVec is_in = is_reached[b] & ~is_reached[b + 1];
        count[b] -= is_in;
        add_where(is_in != 0, l, log_ratio[b]);
        add_where(is_in != 0, more, k3[b]);
      });
    }
    for (int b = 0; b < kGroup; ++b) {
      tokens[kFirst + b].parts[part] = count[b];
      sums[kFirst + b].parts[part] = log_ratio[b];
      sums[Key::kCount + kFirst + b].parts[part] = k3[b];
    }
  }
}

// Sums of the tokens [begin, end) of a chunk, multiples of kPassLanes.
template <class Key>
void sum_buckets(const float* key, const DriftChunk& chunk, int begin, int end,
                 BucketSums<Key::kCount>* out) {
  constexpr int kCount = Key::kCount;
  LanesOf<BitsVec> tokens[FoldedCount(kCount)] = {};
  LanesOf<Vec> sums[FoldedCount(2 * kCount)] = {};
  sum_group<Key, 0, 4>(key, chunk, begin, end, tokens, sums);
  sum_group<Key, 4, 4>(key, chunk, begin, end, tokens, sums);
  if constexpr (kCount > 8) {
    sum_group<Key, 8, kCount - 8>(key, chunk, begin, end, tokens, sums);
  }
  fold_lanes<FoldedCount(kCount)>(tokens, out->tokens);
  fold_lanes<FoldedCount(2 * kCount)>(sums, out->sums);
}

// The number of bits of n, which is the index of its bucket.
COUNTERWEIGHT_HD int bucket_of(int64_t n) {
  return n == 0 ? 0 : 64 - __builtin_clzll(static_cast<uint64_t>(n));
}

class DriftPass {
 public:
  DriftPass(const DriftInput& input, DriftTotals* totals)
      : input_(input), totals_(*totals) {}

  void run() {
    registers_.begin(kRegisters, [](int) { return true; });
    for (int64_t r = 0; r < input_.num_rows; ++r) add_row(&input_.rows[r]);
    registers_.take_bins(kNumRowColumns, [&](int c, ExactBins<double>& bins) {
      for (int k = 0; k < kBins; ++k) totals_.bins[c][k] = bins.low[k];
    });
    for (int c = 0; c < 2 * kNumLengths; ++c) {
      ExactBins<double> bins = lengths_[c].bins();
      bins.carry();
      for (int k = 0; k < kBins; ++k) {
        totals_.bins[kByLength + c][k] = bins.low[k];
      }
    }
  }

 private:
  static constexpr int kRegisters = RegistersOf(kNumRowColumns);
  static constexpr int kRoom = kRegisters * kWideLanes;

  void add_row(DriftRow* row) {
    const int64_t n = row->end - row->begin;
    for (double& sum : sums_) sum = 0.0;
    TermLanes lanes;
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t left = n - begin;
      add_chunk(row->begin + begin, begin,
                static_cast<int>(left < kChunk ? left : kChunk), &lanes);
    }
    for (int k = 0; k < TermLanes::kCount; ++k) sums_[k] = lanes.sum(k);
    row->k3 = (sums_[kFirstK3] + sums_[kLaterK3]) + sums_[kInteraction];
    if (row->is_fresh) {
      sums_[kFreshK3] = sums_[kFirstK3];
      totals_.fresh_tokens += n;
    }
    registers_.add(
        [&](int i) { return load<WideVec>(sums_ + i * kWideLanes); });
    const int length = bucket_of(n) - 1;
    totals_.length_tokens[length] += n;
    lengths_[length].add(sums_[kFirstLogRatio] + sums_[kLaterLogRatio]);
    lengths_[kNumLengths + length].add(row->k3);
  }

  // Tokens of the arrays from `at` on, `place` in their row.
  void add_chunk(int64_t at, int64_t place, int n, TermLanes* lanes) {
    constexpr int kLanes = static_cast<int>(kPassLanes);
    const int full = (n + kLanes - 1) / kLanes * kLanes;
    const float* streams[kMostStreams] = {};
    for (int s = 0; s < kMostStreams; ++s) {
      if (input_.streams[s] == nullptr) continue;
      streams[s] = input_.streams[s] + at;
      if (n == full) continue;
      float* const copy = chunk_.copies[s];
      for (int i = 0; i < n; ++i) copy[i] = streams[s][i];
      for (int i = n; i < full; ++i) copy[i] = 0.0f;
      streams[s] = copy;
    }
    if (streams[2] == nullptr) {
      find_terms<false>(streams, full, lanes, &chunk_);
    } else {
      find_terms<true>(streams, full, lanes, &chunk_);
    }
    const int fillers = full - n;
    BucketSums<kNumLogRatios> ratios;
    sum_buckets<LogRatios>(chunk_.log_ratio, chunk_, 0, full, &ratios);
    for (int b = 0; b < kNumLogRatios; ++b) {
      totals_.log_ratio_tokens[b] += ratios.tokens[b];
      sums_[kByLogRatio + b] += double{ratios.log_ratio(b)};
      sums_[kByLogRatio + kNumLogRatios + b] += double{ratios.k3(b)};
    }
    // A filler has l = 0, and x = 0.
    totals_.log_ratio_tokens[kNumHistogramEdges / 2] -= fillers;
    add_places(streams[0], place, n, full);
  }

  // Places below kPassLanes have buckets within the lanes; after them a bucket
  // is whole lanes, and is one from the second chunk on.
  void add_places(const float* x, int64_t place, int n, int full) {
    if (place > 0) {
      add_place(x, bucket_of(place), 0, n, full);
      return;
    }
    constexpr int kLanes = static_cast<int>(kPassLanes);
    add_first(x, n < kLanes ? n : kLanes);
    for (int begin = kLanes; begin < n; begin *= 2) {
      const int end = 2 * begin;
      add_place(x, bucket_of(begin), begin, n < end ? n : end,
                full < end ? full : end);
    }
  }

  void add_first(const float* x, int n) {
    for (int i = 0; i < n; ++i) {
      int b = 0;
      for (const float edge : kMagnitudeEdges) b += x[i] <= -edge;
      add_to(bucket_of(i), b, 1, chunk_.log_ratio[i], chunk_.k3[i]);
    }
  }

  void add_place(const float* x, int place, int begin, int end, int full) {
    BucketSums<kNumMagnitudes> buckets;
    sum_buckets<Magnitudes>(x, chunk_, begin, full, &buckets);
    buckets.tokens[0] -= full - end;
    for (int b = 0; b < kNumMagnitudes; ++b) {
      add_to(place, b, buckets.tokens[b], buckets.log_ratio(b), buckets.k3(b));
    }
  }

  void add_to(int place, int magnitude, int64_t tokens, float log_ratio,
              float k3) {
    totals_.tokens[place][magnitude] += tokens;
    sums_[kByMagnitude + magnitude] += double{log_ratio};
    sums_[kByMagnitude + kNumMagnitudes + magnitude] += double{k3};
    sums_[kByPlace + place] += double{log_ratio};
    sums_[kByPlace + kNumPlaces + place] += double{k3};
  }

  const DriftInput& input_;
  DriftTotals& totals_;
  DriftChunk chunk_;
  double sums_[kRoom];  // of a row
  ExactRegisters<kRegisters> registers_;
  ExactSum lengths_[2 * kNumLengths];
};

inline void sum_drift(const DriftInput& input, DriftTotals* totals) {
  *totals = {};
  DriftPass(input, totals).run();
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels::doctor

#endif  // COUNTERWEIGHT_KERNELS_DOCTOR_DRIFT_PASS_IMPL_H_
