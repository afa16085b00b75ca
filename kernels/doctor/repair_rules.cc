// Repairs: each is tried, and the one that makes the drift vanish is named.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/doctor/examination.h"
#include "kernels/doctor/tensor_reader.h"
#include "kernels/math/bits.h"
#include "kernels/math/exp.h"

namespace counterweight::kernels::doctor {
namespace {

constexpr double kLn10 = 2.302585092994046;
constexpr double kLn2 = 0.6931471805599453;

// A repair of one of the two streams of a pair.
struct Repair {
  Name name;
  PairSum sum;
  bool of_second;
  const char* detail;
  double most_first;   // share of the drift that may stay, streams 0 and 1
  double most_second;  // the same for streams 1 and 2
};
constexpr Repair kRepairs[] = {
    {Name::kShifted, kEarly, false, "early", 0.5, 0.5},
    {Name::kShifted, kLate, false, "late", 0.5, 0.5},
    {Name::kLog10, kXLog10, false, "", 0.65, 0.5},
    {Name::kLog2, kXLog2, false, "", 0.65, 0.5},
    {Name::kLog10, kYLog10, true, "", 0.65, 0.5},
    {Name::kLog2, kYLog2, true, "", 0.65, 0.5},
    {Name::kCumulative, kXCumulative, false, "", 0.3, 0.3},
    {Name::kCumulative, kYCumulative, true, "", 0.3, 0.3},
};

struct Trial {
  const Repair* repair = nullptr;
  double now = 0.0;
  double repaired = 0.0;
  double left() const { return repaired / std::max(now, 1e-12); }
};

Trial BestRepair(const double* sums, int64_t n) {
  Trial best;
  const double pairs = std::max(sums[kPairs], 1.0);
  for (const Repair& repair : kRepairs) {
    const bool by_pairs = repair.name == Name::kShifted;
    const double count = by_pairs ? pairs : static_cast<double>(n);
    const Trial trial = {&repair,
                         sums[by_pairs ? kCappedPairs : kCapped] / count,
                         sums[repair.sum] / count};
    if (best.repair == nullptr || trial.left() < best.left()) best = trial;
  }
  return best;
}

// A change of base needs the slope through the origin to be that of the base.
// Without the guard an engine that is flatter is taken for one.
bool HasSlope(const Examination& e, const Repair& repair) {
  const bool is_log10 = repair.name == Name::kLog10;
  const double base = is_log10 ? kLn10 : kLn2;
  const double wanted = repair.of_second ? 1.0 / base : base;
  const double slope =
      std::sqrt(e.pair[kYY] / std::max(e.pair[kXX], 1e-30)) / wanted;
  const double most = is_log10 ? 1.2214 : 1.1052;  // e^0.2, e^0.1
  const float* const x = e.sample.values(0);
  const float* const y = e.sample.values(1);
  int64_t missing = 0;
  for (int64_t i = 0; i < e.n(); ++i) {
    missing +=
        (x[i] == 0.0f && y[i] < -0.01f) + (y[i] == 0.0f && x[i] < -0.01f);
  }
  return slope <= most && slope >= 1.0 / most &&
         static_cast<double>(missing) <= 0.03 * static_cast<double>(e.n());
}

double Logit(double x) {
  const double z = x - log64(-expm1_64(std::min(x, -1e-30)));
  return std::clamp(z, -12.0, 12.0);
}

// Whether a temperature explains the two streams better than a change of base:
// tokens near 0 nats differ. Far from it T = 0.7 and base 2 have nearly the
// same slope.
bool IsTemperature(const Examination& e, const Repair& repair) {
  constexpr int64_t kEnough = 4096;
  const double n = e.pair[kLogits];
  if (n < 2.0) return false;
  const double mean_x = e.pair[kLogitX] / n, mean_y = e.pair[kLogitY] / n;
  const double slope =
      std::sqrt((e.pair[kLogitYY] / n - mean_y * mean_y) /
                std::max(e.pair[kLogitXX] / n - mean_x * mean_x, 1e-30));
  const double base = repair.name == Name::kLog10 ? kLn10 : kLn2;
  const double factor = repair.of_second ? 1.0 / base : base;
  double by_base = 0.0, by_temperature = 0.0;
  const float* const x = e.sample.values(0);
  const float* const y = e.sample.values(1);
  const int64_t stride = (e.n() + kEnough - 1) / kEnough;
  for (int64_t i = 0; i < e.n(); i += stride) {
    if (!(x[i] < 0.0f) || !(y[i] < 0.0f)) continue;
    const double logit = Logit(double{y[i]});
    by_base += Capped(logit - Logit(factor * double{x[i]}));
    by_temperature += Capped(logit - slope * Logit(double{x[i]}));
  }
  return by_temperature < by_base;
}

// True if the drift falls by more than chance makes it fall.
bool IsBeyondChance(const Trial& trial, int64_t n) {
  return trial.now - trial.repaired >
         2.4 / std::sqrt(static_cast<double>(n)) * trial.now;
}

// The one of two shifted streams that is shifted against the third one, too: 0
// or 1.
int ShiftedOne(const Examination& e) {
  if (!e.has_third()) return 0;
  const float* const c = e.sample.values(2);
  double distance[2] = {};
  for (int s = 0; s < 2; ++s) {
    const float* const x = e.sample.values(s);
    for (int64_t i = 0; i < e.n(); ++i) {
      distance[s] += Capped(double{c[i]} - double{x[i]});
    }
  }
  return distance[0] < distance[1] ? 1 : 0;
}

const char* Opposite(const char* detail) {
  return detail[0] == 'e' ? "late" : "early";
}

void AddRepair(Examination* e, const Trial& trial, int stream,
               const char* detail) {
  Finding& finding =
      e->Add(trial.repair->name, 1.0 - trial.left(), e->stream(stream));
  finding.detail = detail;
  finding.observed = trial.now;
  finding.repaired = trial.repaired;
  e->SetExample(0, &finding);
}

}  // namespace

void RepairRules(Examination* e) {
  const bool is_named = e->is_named[0] || e->is_named[1] || e->is_named[2];
  if (is_named || e->n() < 8) return;
  const Trial first = BestRepair(e->pair, e->n());
  const Repair& repair = *first.repair;
  const bool is_base =
      repair.name == Name::kLog10 || repair.name == Name::kLog2;
  const auto is_allowed = [&] {
    return !is_base || (HasSlope(*e, repair) && !IsTemperature(*e, repair) &&
                        (repair.name != Name::kLog2 || e->n() >= 200));
  };
  if (first.left() < repair.most_first && first.now > 0.02 &&
      IsBeyondChance(first, e->n()) && is_allowed()) {
    const bool is_shift = repair.name == Name::kShifted;
    const int stream = is_shift ? ShiftedOne(*e) : repair.of_second ? 1 : 0;
    const bool turn = is_shift && stream == 1;
    AddRepair(e, first, stream, turn ? Opposite(repair.detail) : repair.detail);
    return;
  }
  if (!e->has_third()) return;
  const Trial later = BestRepair(e->later_pair, e->n());
  if (later.left() >= later.repair->most_second || later.now <= 0.08 ||
      !IsBeyondChance(later, e->n())) {
    return;
  }
  const bool is_shift = later.repair->name == Name::kShifted;
  AddRepair(e, later, 2,
            is_shift ? Opposite(later.repair->detail) : later.repair->detail);
}

namespace {

// The row of each position of the batch, whatever its mask.
int64_t RowOf(const Batch& batch, int64_t place) {
  const int64_t* const end = batch.offsets + batch.num_sequences + 1;
  return std::upper_bound(batch.offsets, end, place) - batch.offsets - 1;
}

// Rows that slide: token i of the second stream belongs to position i + s of
// the first one, where s grows by one with each row, of i or of i + s.
struct Slide {
  int sign;
  bool by_target;
  const char* detail;
};
// Those by target are of the second stream.
constexpr Slide kSlides[] = {{1, false, "more"},
                             {-1, false, "fewer"},
                             {-1, true, "more"},
                             {1, true, "fewer"}};
constexpr int64_t kMostSlid = 2048;

int64_t Target(const Batch& batch, int64_t place, int64_t row,
               const Slide& slide) {
  const int64_t last = batch.offsets[batch.num_sequences] - 1;
  int64_t shift = row;
  for (int step = 0; slide.by_target && step < 6; ++step) {
    const int64_t at = std::clamp<int64_t>(place + slide.sign * shift, 0, last);
    shift = RowOf(batch, at);
  }
  return place + slide.sign * shift;
}

// Mean distance with the slide undone; 4 if too few tokens overlap.
double Undone(const Examination& e, const Slide& slide) {
  const int64_t positions = e.batch.offsets[e.batch.num_sequences];
  const int64_t stride = (e.n() + kMostSlid - 1) / kMostSlid;
  double sum = 0.0;
  int64_t tried = 0, used = 0;
  for (int64_t i = 0; i < e.n(); i += stride) {
    ++tried;
    const int64_t place = e.sample.place[static_cast<size_t>(i)];
    const int64_t target = Target(e.batch, place, RowOf(e.batch, place), slide);
    if (target < 0 || target >= positions) continue;
    const float x = At(e.streams.tensors[0], target);
    if (x == 0.0f || !is_finite(x)) continue;
    sum += Capped(double{e.sample.values(1)[i]} - double{x});
    ++used;
  }
  const double least = std::max(8.0, 0.6 * static_cast<double>(tried));
  const auto count = static_cast<double>(used);
  return count >= least ? sum / count : 4.0;
}

}  // namespace

void CountRule(Examination* e) {
  const double now = e->mean(kCapped);
  if (e->sample.rows.size() < 3 || now <= 0.25 || e->found.meets(kRepaired)) {
    return;
  }
  const Slide* best = nullptr;
  double least = 0.0;
  for (const Slide& slide : kSlides) {
    const double undone = Undone(*e, slide);
    if (best == nullptr || undone < least) {
      best = &slide;
      least = undone;
    }
  }
  if (least >= 0.45 * now) return;
  Finding& finding = e->Add(Name::kCountOffByOne, 1.0 - least / now,
                            best->by_target ? e->stream(1) : e->stream(0));
  finding.detail = best->detail;
  finding.observed = now;
  finding.repaired = least;
  // The first row is in place.
  e->SetExample(e->sample.rows[1].begin, &finding);
}

}  // namespace counterweight::kernels::doctor
