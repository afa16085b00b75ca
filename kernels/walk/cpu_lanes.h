// The CPU's view of a tile: one thread, 32 lanes.
#ifndef COUNTERWEIGHT_KERNELS_WALK_CPU_LANES_H_
#define COUNTERWEIGHT_KERNELS_WALK_CPU_LANES_H_

#include <cstdint>
#include <utility>

#include "kernels/batch.h"
#include "kernels/math/bits.h"
#include "kernels/plan/needs.h"
#include "kernels/tile/fold_registers.h"
#include "kernels/tile/tile.h"
#include "kernels/walk/lane_columns.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

struct CpuLanes {
  static constexpr int kWidth = kLanes;
  static constexpr int kTileSteps = kSteps;
  using CpuTile = Tile<kWidth, kTileSteps>;
  using Steps = int;
  // A tile is a block.
  static constexpr bool kReadsAhead = false;
  struct Ahead {};
  using Columns = LaneColumns<CpuLanes>;

  // Accepts any plan: what a phase reads and does follows from the plan alone.
  static constexpr RatioSource source(SourceUse /*use*/, RatioSource of_plan) {
    return of_plan;
  }
  static constexpr uint32_t inputs(uint32_t of_plan) { return of_plan; }
  static constexpr uint32_t sources(uint32_t of_plan) { return of_plan; }
  static constexpr bool may(Needs /*some*/) { return true; }
  static constexpr bool must(Needs /*some*/) { return false; }

  static int lane(int i) { return i; }
  // True on the one thread that holds folded results.
  static bool writes() { return true; }

  static const CpuTile& choose(bool first, const CpuTile& a, const CpuTile& b) {
    return first ? a : b;
  }

  // f(rule) for each of `rules`.
  template <class F>
  static COUNTERWEIGHT_HD void for_each_rule(int rules, F f) {
    for (int r = 0; r < rules; ++r) f(r);
  }

  // Steps to walk for `count` positions.
  static int steps(int count) {
    return count <= kFewSteps * kLanes ? kFewSteps : kSteps;
  }

  // Lanes fold by halving: first whole registers, down to one.
  static WideVec halved(const LaneValues<kWidth, double>& x) {
    return halved<WideVec>(x.at, [](auto a, auto b) { return a + b; });
  }
  // Counts, with a sum that is exact in any order. In float32, too, as long as
  // few
  // lanes are added: the largest are those of DriftPhase's histogram, below
  // 2^14 for each of the 128 tokens that a lane sees.
  static WideVec halved_count(const LaneValues<kWidth, float>& x) {
    constexpr int kRegisters = kLanes / kVecLanes;
    constexpr int kAdded = kRegisters < 4 ? kRegisters : 4;
    static_assert(kAdded * (kSegmentPositions / kLanes) << 14 < 1 << 24);
    WideVec all{};
    for (int first = 0; first < kRegisters; first += kAdded) {
      const float* const at = &x.at[first * kVecLanes];
      Vec sum = counterweight::kernels::load<Vec>(at);
      for (int i = 1; i < kAdded; ++i) {
        sum += counterweight::kernels::load<Vec>(at + i * kVecLanes);
      }
      all += widened_half<false>(sum) + widened_half<true>(sum);
    }
    return all;
  }
  // Then the lanes within registers, of as many columns as a register has
  // lanes: lane i of the result is column i's sum.
  static WideVec fold_registers(WideVec (&columns)[kWideLanes]) {
    return counterweight::kernels::fold_registers<kWideLanes>(&columns[0]);
  }
  static float fold_min(const LaneValues<kWidth, float>& x) {
    return fold_lanes(x.at, [](auto a, auto b) { return b < a ? b : a; });
  }
  static float fold_max(const LaneValues<kWidth, float>& x) {
    return fold_lanes(x.at, [](auto a, auto b) { return b > a ? b : a; });
  }
  static int64_t fold_min(int64_t x) { return x; }
  static uint32_t fold_or(const LaneValues<kWidth, uint32_t>& x) {
    uint32_t all = 0;
    for (int i = 0; i < kLanes; ++i) all |= x.at[i];
    return all;
  }
  static bool any(const LaneValues<kWidth, float>& x) {
    uint32_t bits = 0;
    for (int i = 0; i < kLanes; ++i) bits |= bits_of(x.at[i]);
    return bits != 0;
  }

  // Hillis and Steele's inclusive scan over the lanes ("Data parallel
  // algorithms", 1986).
  static COUNTERWEIGHT_HD void scan(LaneValues<kWidth, double>& x) {
    constexpr int kRegisters = kLanes / kWideLanes;
    WideVec r[kRegisters];
    for (int j = 0; j < kRegisters; ++j) {
      r[j] = counterweight::kernels::load<WideVec>(&x.at[j * kWideLanes]);
    }
    scan_registers<1>(r);
    for (int j = 0; j < kRegisters; ++j) {
      counterweight::kernels::store(r[j], &x.at[j * kWideLanes]);
    }
  }
  // The same of the tile's step, which is 0 or 1 in each lane.
  static COUNTERWEIGHT_HD void scan_counts(const CpuTile& seen, int step,
                                           LaneValues<kWidth, double>& count) {
    BitsVec all = reinterpret_cast<BitsVec>(seen.vec(step, 0));
    for (int g = 1; g < kLanes / kVecLanes; ++g) {
      all &= reinterpret_cast<BitsVec>(seen.vec(step, g));
    }
    LaneValues<kVecLanes, float> lanes;
    counterweight::kernels::store(all, lanes.at);
    uint32_t bits = ~0u;
    for (int i = 0; i < kVecLanes; ++i) bits &= bits_of(lanes.at[i]);
    if (bits == bits_of(1.0f)) {
      for (int i = 0; i < kLanes; ++i) count.at[i] = i + 1;
      return;
    }
    for (int h = 0; h < kLanes / kWideLanes; ++h) {
      counterweight::kernels::store(seen.wide(step, h),
                                    &count.at[h * kWideLanes]);
    }
    scan(count);
  }
  static double last(const LaneValues<kWidth, double>& x) {
    return x.at[kLanes - 1];
  }

  // Reads positions [position, position + count) of a tensor where mask is not
  // 0, and writes 0 elsewhere.
  static void load(const TensorView& tensor, int64_t position, int count,
                   const CpuTile& mask, CpuTile& out) {
    const char* source =
        static_cast<const char*>(tensor.data) + position * SizeOf(tensor.dtype);
    const auto put = [&](int k, int i, float x) COUNTERWEIGHT_INLINE_LAMBDA {
      out.at[k][i] = select(mask.at[k][i] != 0.0f, x, 0.0f);
    };
    switch (tensor.dtype) {
      case DType::kF32:
        for_each_element<float>(
            source, count,
            [&](int k, int i, float x)
                COUNTERWEIGHT_INLINE_LAMBDA { put(k, i, x); });
        break;
      case DType::kBF16:
        for_each_element<uint16_t>(
            source, count,
            [&](int k, int i, uint16_t x)
                COUNTERWEIGHT_INLINE_LAMBDA { put(k, i, from_bf16(x)); });
        break;
      case DType::kF16:
        for_each_element<uint16_t>(
            source, count,
            [&](int k, int i, uint16_t x)
                COUNTERWEIGHT_INLINE_LAMBDA { put(k, i, from_f16(x)); });
        break;
    }
  }

  template <class State>
  static uint32_t reasons_ahead(const State& /*s*/, int /*step*/) {
    return 0;
  }

  // 1 where the byte is not 0.
  static void load_mask(const uint8_t* mask, int64_t position, int count,
                        CpuTile& out) {
    for_each_element<uint8_t>(
        reinterpret_cast<const char*>(mask + position), count,
        [&](int k, int i, uint8_t x) COUNTERWEIGHT_INLINE_LAMBDA {
          out.at[k][i] = x != 0 ? 1.0f : 0.0f;
        });
  }

  // Writes the tile's positions into `out` of the batch; does nothing where it
  // is null.
  template <class From, class State, class To>
  static void store(const From& tile, const State& s, To* out) {
    if (out == nullptr) return;
    const auto* from = &tile.at[0][0];
    To* to = out + s.position;
    const int count = s.count;
    // The next tile's lines: a store waits for its line as a load does.
    const char* const next = reinterpret_cast<const char*>(to + kTilePositions);
    const int bytes = count * static_cast<int>(sizeof(To));
    for (int line = 0; line < bytes; line += kCacheLine) {
      __builtin_prefetch(next + line, /*rw=*/1);
    }
    COUNTERWEIGHT_IVDEP
    for (int i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
  }

 private:
  static constexpr int kCacheLine = 64;
  // Distance of the prefetch of inputs. A prefetch may name memory that does
  // not exist.
  static constexpr int kTilesAhead = 2;

  // f(lane i, lane i + half) until one register is left.
  template <class V, class T, class F>
  COUNTERWEIGHT_HD static V halved(const T (&lanes)[kLanes], F f) {
    constexpr int kRegisters = kLanes * sizeof(T) / sizeof(V);
    constexpr int kLanesOfOne = kLanes / kRegisters;
    V registers[kRegisters];
    for (int i = 0; i < kRegisters; ++i) {
      registers[i] = counterweight::kernels::load<V>(&lanes[i * kLanesOfOne]);
    }
    for (int half = kRegisters / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) {
        registers[i] = f(registers[i], registers[i + half]);
      }
    }
    return registers[0];
  }
  template <class F>
  COUNTERWEIGHT_HD static float fold_lanes(const float (&lanes)[kLanes], F f) {
    return fold_within<kVecLanes / 2>(halved<Vec>(lanes, f), f)[0];
  }
  template <int kHalf, class F>
  COUNTERWEIGHT_HD static Vec fold_within(Vec x, F f) {
    if constexpr (kHalf == 0) {
      return x;
    } else {
      const Vec folded =
          f(x,
            moved_down<kHalf>(x, std::make_integer_sequence<int, kVecLanes>()));
      return fold_within<kHalf / 2>(folded, f);
    }
  }
  // Lane i of the result is lane i + kDistance, or any where there is none.
  template <int kDistance, int... lane>
  COUNTERWEIGHT_HD static Vec moved_down(Vec x,
                                         std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(x, x, ((lane + kDistance) % kVecLanes)...);
  }

  // The distances of a scan from kDistance on, the largest lanes first: a
  // register's lanes are read before they change.
  template <int kDistance, int kRegisters>
  static COUNTERWEIGHT_HD void scan_registers(WideVec (&r)[kRegisters]) {
    for (int j = kRegisters - 1; j >= 0; --j) {
      if constexpr (kDistance < kWideLanes) {
        // -0 leaves every addend as it is.
        const WideVec before = j > 0 ? r[j - 1] : splat_wide(-0.0);
        r[j] += shifted<kDistance>(
            before, r[j], std::make_integer_sequence<int, kWideLanes>());
      } else if (j >= kDistance / kWideLanes) {
        r[j] += r[j - kDistance / kWideLanes];
      }
    }
    if constexpr (2 * kDistance < kLanes) scan_registers<2 * kDistance>(r);
  }
  // `distance` lanes of `before`, then those of `x` as far as they fit.
  template <int kDistance, int... lane>
  static COUNTERWEIGHT_HD WideVec shifted(WideVec before, WideVec x,
                                          std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(before, x,
                                   (kWideLanes - kDistance + lane)...);
  }

  // f(step, lane, element) for every position of a tile's steps, with 0 from
  // `count` on. Nothing behind the elements is read.
  template <class T, class F>
  COUNTERWEIGHT_HD static void for_each_element(const char* source, int count,
                                                F f) {
    constexpr int kStepBytes = kLanes * static_cast<int>(sizeof(T));
    const auto step = [&](const char* from, int k) COUNTERWEIGHT_INLINE_LAMBDA {
      COUNTERWEIGHT_IVDEP
      for (int i = 0; i < kLanes; ++i) f(k, i, element<T>(from, i));
    };
    const int whole = count / kLanes;
    for (int k = 0; k < whole; ++k) {
      const char* const from = source + k * kStepBytes;
      for (int line = 0; line < kStepBytes; line += kCacheLine) {
        __builtin_prefetch(from + kTilesAhead * kSteps * kStepBytes + line);
      }
      step(from, k);
    }
    if (whole == steps(count)) return;
    alignas(64) char rest[kStepBytes];
    copy_rest<T>(source + whole * kStepBytes, count - whole * kLanes, rest);
    step(rest, whole);
    for (int k = whole + 1; k < steps(count); ++k) {
      COUNTERWEIGHT_IVDEP
      for (int i = 0; i < kLanes; ++i) f(k, i, T{});
    }
  }

  // `count` elements, fewer than a step has, and zeros. By whole registers: a
  // load waits for stores that are narrower than it.
  template <class T>
  COUNTERWEIGHT_HD static void copy_rest(const char* from, int count,
                                         char (&to)[kLanes * sizeof(T)]) {
    constexpr int kBytes = sizeof(to);
    const int bytes = count * static_cast<int>(sizeof(T));
#if defined(__AVX512BW__)
    const uint64_t all = (uint64_t{1} << (bytes & 63)) - 1;
    if constexpr (kBytes == 32) {
      _mm256_store_si256(
          reinterpret_cast<__m256i*>(to),
          _mm256_maskz_loadu_epi8(static_cast<__mmask32>(all), from));
      return;
    }
    for (int at = 0; at < kBytes; at += 64) {
      const uint64_t before = bytes >= at + 64 ? ~uint64_t{0} : all;
      const uint64_t mask = bytes > at ? before : 0;
      _mm512_store_si512(to + at, _mm512_maskz_loadu_epi8(mask, from + at));
    }
#elif defined(__AVX2__)
    const int words = bytes / 4;
    uint32_t end = 0;
    __builtin_memcpy(&end, from + words * 4, static_cast<size_t>(bytes % 4));
    const __m256i last = _mm256_set1_epi32(static_cast<int>(end));
    for (int at = 0; at < kBytes; at += 32) {
      const __m256i word = _mm256_add_epi32(
          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(at / 4));
      const __m256i whole = _mm256_cmpgt_epi32(_mm256_set1_epi32(words), word);
      const __m256i is_end = _mm256_cmpeq_epi32(_mm256_set1_epi32(words), word);
      const __m256i read =
          _mm256_maskload_epi32(reinterpret_cast<const int*>(from + at), whole);
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + at),
                         _mm256_or_si256(read, _mm256_and_si256(last, is_end)));
    }
#else
    __builtin_memset(to, 0, kBytes);
    __builtin_memcpy(to, from, static_cast<size_t>(bytes));
#endif
  }

  // Tensors may have any alignment.
  template <class T>
  static T element(const char* source, int i) {
    T value;
    __builtin_memcpy(&value, source + i * static_cast<int>(sizeof(T)),
                     sizeof(T));
    return value;
  }
};

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_CPU_LANES_H_
