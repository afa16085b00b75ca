#include "kernels/partial_sums.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/math/exact_sum.h"
#include "kernels/walk/batch_sums.h"
#include "kernels/walk/make_plan.h"
#include "kernels/walk/partial_layout.h"
#include "kernels/walk/row_record.h"

namespace counterweight::kernels {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Moves to each bin what is a multiple of its grid in the next one, so that
// what is left there is in (-grid / 2, grid / 2]: the only way to write a sum.
// ExactBins::carry() rounds halves to even, which depends on the addends.
template <int kTop, int k>
void SettleBins(double* bins) {
  if constexpr (k == 0) {
    // NaNs and zeros have one form.
    bins[0] = std::isnan(bins[0]) ? kNaN : bins[0] + 0.0;
  } else {
    constexpr double kMagic = BinMagic<kTop, k - 1>::kValue;
    constexpr double kHalf = power_of_two(kTop - kBinBits * (k - 1) - 1);
    double carried = (bins[k] + kMagic) - kMagic;
    double rest = bins[k] - carried;
    if (rest == -kHalf) {
      rest = kHalf;
      carried -= 2.0 * kHalf;
    }
    bins[k] = rest + 0.0;
    bins[k - 1] += carried;
    SettleBins<kTop, k - 1>(bins);
  }
}

void AddAll(const std::vector<double>& from, std::vector<double>* to) {
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] += from[i];
}

// Where a column of ColumnsOfRows() is in a record.
class Fields {
 public:
  Fields(const Plan& plan, RowRecord* record) : plan_(plan), record_(*record) {}

  double& at(int column) {
    const auto is_in = [&](int count) {
      if (column < count) return true;
      column -= count;
      return false;
    };
    if (is_in(plan_.token_columns)) return record_.token_sums[column];
    if (is_in(plan_.row_columns)) return record_.row_sums[column];
    if (is_in(plan_.token_extrema)) return record_.token_low[column];
    if (is_in(plan_.token_extrema)) return record_.token_high[column];
    if (is_in(plan_.row_extrema)) return record_.row_low[column];
    if (is_in(plan_.row_extrema)) return record_.row_high[column];
    --column;  // first_bad
    if (is_in(kNumLossColumns)) return record_.loss_sums[column];
    if (is_in(kNumRowLossColumns)) return record_.row_loss_sums[column];
    if (is_in(kNumRowLossExtrema)) return record_.row_loss_low[column];
    return record_.row_loss_high[column];
  }

 private:
  const Plan& plan_;
  RowRecord& record_;
};

double NarrowSum(const double* bins) {
  ExactBins<double> sum;
  sum.clear();
  std::copy_n(bins, kBins, sum.low);
  return sum.take();
}

double WideSum(const double* bins) {
  ExactBins<double> sum;
  load_bins(bins, sum);
  return sum.take();
}

// True if losses of several batches do not add up.
bool CouplesRows(const LossSpec& loss, const WeightSpec& weight) {
  const auto counts = [](const LossReduction& reduction) {
    return reduction.count != BatchCount::kOne ||
           reduction.row == RowCount::kGroupTokens;
  };
  return counts(loss.reduction) ||
         (loss.kl.estimator != KlEstimator::kNone &&
          counts(loss.kl.reduction)) ||
         (loss.applies_weight && weight.normalize && weight.given_mean <= 0.0);
}

void AgreeOnSizes(PartialSums* sums) {
  SetAgreed(Agreed::kNumWhole, static_cast<double>(sums->whole.size()), sums);
  SetAgreed(Agreed::kNumNarrow, static_cast<double>(sums->narrow.size()), sums);
}

// Reads numbers in order.
class WholeReader {
 public:
  explicit WholeReader(const double* at) : at_(at) {}
  int64_t Count() { return static_cast<int64_t>(*at_++); }
  double Number() { return *at_++; }

 private:
  const double* at_;
};

void ReadStaleness(const PartialSums& partial, const PartialLayout& layout,
                   StalenessSums* sums) {
  WholeReader whole(partial.whole.data() + kNumPartialWhole +
                    layout.whole.size());
  const double* narrow =
      partial.narrow.data() + layout.narrow.size() * size_t{kBins};
  sums->measured = 1;
  for (StalenessBucketSums& bucket : sums->buckets) {
    bucket.tokens = whole.Count();
    bucket.log_ratio = NarrowSum(narrow);
    bucket.k3 = NarrowSum(narrow + kBins);
    narrow += 2 * kBins;
  }
  sums->unknown_tokens = whole.Count();
  sums->staleness = whole.Number();
  for (int64_t& count : sums->histogram) count = whole.Count();
  sums->max = static_cast<int64_t>(partial.maxima.back());
}

}  // namespace

void SetAgreed(Agreed what, double value, PartialSums* sums) {
  const auto at = 2 * static_cast<size_t>(what);
  // Zeros have one form.
  sums->maxima[at] = value + 0.0;
  sums->maxima[at + 1] = 0.0 - value;
}

std::optional<double> AgreedOn(const PartialSums& sums, Agreed what) {
  const auto at = 2 * static_cast<size_t>(what);
  const double value = sums.maxima[at];
  if (!(value == -sums.maxima[at + 1])) return std::nullopt;
  return value;
}

bool HaveSameSizes(const PartialSums& a, const PartialSums& b) {
  return a.whole.size() == b.whole.size() &&
         a.narrow.size() == b.narrow.size() && a.wide.size() == b.wide.size() &&
         a.maxima.size() == b.maxima.size();
}

void Settle(PartialSums* sums) {
  for (size_t i = 0; i < sums->narrow.size(); i += kBins) {
    SettleBins<kTopGrid, kBins - 1>(&sums->narrow[i]);
  }
  for (size_t i = 0; i < sums->wide.size(); i += kAllBins) {
    SettleBins<kTopGrid, kBins - 1>(&sums->wide[i]);
    SettleBins<kTopHighGrid, kHighBins - 1>(&sums->wide[i + kBins]);
  }
  for (double& x : sums->maxima) x += 0.0;
  sums->whole[kPartialVectors] = 1.0;
}

void Merge(const PartialSums& part, PartialSums* sums) {
  AddAll(part.whole, &sums->whole);
  AddAll(part.narrow, &sums->narrow);
  AddAll(part.wide, &sums->wide);
  for (size_t i = 0; i < sums->maxima.size(); ++i) {
    sums->maxima[i] = std::max(sums->maxima[i], part.maxima[i]);
  }
  Settle(sums);
}

PartialSums NoSums(const CorrectionSpec& spec, bool has_versions) {
  const Plan plan = MakePlan(spec);
  const auto totals = static_cast<size_t>(ColumnsOfRows(plan).totals);
  const std::vector<double> bins(totals, 0.0);
  RowRecord nothing{};
  clear_row(plan, nothing);
  PartialSums sums =
      MakePartialSums(plan, PartialLayout(plan), 0, nothing, bins.data());
  sums.whole[kPartialParts] = sums.whole[kPartialCoupled] = 0.0;
  if (has_versions) {
    const StalenessBins no_bins[kNumStalenessBuckets]{};
    AddStaleness(StalenessSums{}, no_bins, &sums);
  }
  return sums;
}

PartialSums MakePartialSums(const Plan& plan, const PartialLayout& layout,
                            int64_t num_sequences, const RowRecord& total,
                            const double* bins) {
  const RecordColumns& columns = layout.columns;
  RowRecord record = total;
  Fields fields(plan, &record);
  PartialSums sums;
  sums.whole.reserve(kNumPartialWhole + layout.whole.size());
  sums.narrow.reserve(layout.narrow.size() * size_t{kBins});
  sums.wide.reserve(layout.wide.size() * size_t{kAllBins});
  sums.maxima.reserve(size_t{2} * kNumAgreed + layout.lows.size() +
                      layout.highs.size());
  sums.whole = {
      1.0, 1.0, static_cast<double>(num_sequences),
      plan.loss.active && CouplesRows(plan.loss.spec, plan.weight.spec) ? 1.0
                                                                        : 0.0};
  for (const int c : layout.whole) sums.whole.push_back(fields.at(c));
  for (const int c : layout.narrow) {
    const double* const from = &bins[columns.total[c]];
    sums.narrow.insert(sums.narrow.end(), from, from + kBins);
    const double* const high = std::find_if(from + kBins, from + kAllBins,
                                            [](double x) { return x != 0.0; });
    if (high == from + kAllBins) continue;
    sums.narrow[sums.narrow.size() - kBins] +=
        std::copysign(std::numeric_limits<double>::infinity(), *high);
  }
  for (const int c : layout.wide) {
    const double* const from = &bins[columns.total[c]];
    sums.wide.insert(sums.wide.end(), from, from + kAllBins);
  }
  sums.maxima.resize(size_t{2} * kNumAgreed, 0.0);
  AgreeOnSizes(&sums);
  SetAgreed(Agreed::kWeightMean, plan.weight.spec.given_mean, &sums);
  for (const int c : layout.lows) sums.maxima.push_back(-fields.at(c));
  for (const int c : layout.highs) sums.maxima.push_back(fields.at(c));
  Settle(&sums);
  return sums;
}

void AddStaleness(const StalenessSums& staleness, const StalenessBins* buckets,
                  PartialSums* sums) {
  const auto add = [&](int64_t count) {
    sums->whole.push_back(static_cast<double>(count));
  };
  for (int b = 0; b < kNumStalenessBuckets; ++b) {
    add(staleness.buckets[b].tokens);
    const StalenessBins& from = buckets[b];
    sums->narrow.insert(sums->narrow.end(), from.log_ratio,
                        from.log_ratio + kBins);
    sums->narrow.insert(sums->narrow.end(), from.k3, from.k3 + kBins);
  }
  add(staleness.unknown_tokens);
  sums->whole.push_back(staleness.staleness);
  for (const int64_t count : staleness.histogram) add(count);
  sums->maxima.push_back(static_cast<double>(staleness.max));
  SetAgreed(Agreed::kVersions, 1.0, sums);
  AgreeOnSizes(sums);
  Settle(sums);
}

BatchSums SumsOf(const CorrectionSpec& spec, const PartialSums& partial) {
  CorrectionSpec of_parts = spec;
  if (const auto mean = AgreedOn(partial, Agreed::kWeightMean)) {
    of_parts.weight.given_mean = *mean;
  }
  const Plan plan = MakePlan(of_parts);
  const PartialLayout layout(plan);
  RowRecord record{};
  clear_row(plan, record);
  Fields fields(plan, &record);
  const double* whole = partial.whole.data() + kNumPartialWhole;
  for (const int c : layout.whole) fields.at(c) = *whole++;
  const double* narrow = partial.narrow.data();
  for (const int c : layout.narrow) {
    fields.at(c) = NarrowSum(narrow);
    narrow += kBins;
  }
  const double* wide = partial.wide.data();
  for (const int c : layout.wide) {
    fields.at(c) = WideSum(wide);
    wide += kAllBins;
  }
  const double* maxima = partial.maxima.data() + ptrdiff_t{2} * kNumAgreed;
  for (const int c : layout.lows) fields.at(c) = -*maxima++;
  for (const int c : layout.highs) fields.at(c) = *maxima++;
  BatchSums sums = MakeBatchSums(
      plan, static_cast<int64_t>(partial.whole[kPartialSequences]), record);
  sums.loss.count = AgreedOn(partial, Agreed::kLossCount).value_or(0.0);
  if (AgreedOn(partial, Agreed::kVersions) == 1.0) {
    ReadStaleness(partial, layout, &sums.staleness);
  }
  return sums;
}

}  // namespace counterweight::kernels
