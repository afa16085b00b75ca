#include "kernels/doctor/attribution.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "kernels/doctor/row_versions.h"

namespace counterweight::kernels::doctor {
namespace {

static_assert(kMostExamined == int64_t{1} << (kNumPlaces - 1));
static_assert(kMostExamined < int64_t{1} << kNumLengths);
static_assert(std::size(kMagnitudeEdges) + 1 == kNumMagnitudes);

bool IsHeavier(const HeavySequence& a, const HeavySequence& b) {
  return a.k3 != b.k3 ? a.k3 > b.k3 : a.sequence < b.sequence;
}

ExactBins<double> BinsOf(const double* low) {
  ExactBins<double> bins;
  bins.clear();
  std::copy_n(low, kBins, bins.low);
  return bins;
}

// The number that a person wrote: the float 0.01 is 0.00999999978.
double Written(float edge) { return std::round(double{edge} * 1e4) / 1e4; }

double FirstMagnitude(int bucket) {
  return bucket == 0 ? 0.0 : Written(kMagnitudeEdges[bucket - 1]);
}

// 0, 1, 2, 4, 8 ...
double FirstPlace(int bucket) {
  return bucket == 0 ? 0.0 : static_cast<double>(int64_t{1} << (bucket - 1));
}

double FirstLength(int bucket) {
  return static_cast<double>(int64_t{1} << bucket);
}

}  // namespace

void AttributionSums::Add(const Batch& batch, const Sample& sample,
                          int64_t first_sequence) {
  std::vector<DriftRow> rows;
  rows.reserve(sample.rows.size());
  for (const SampledRow& row : sample.rows) {
    rows.push_back({row.begin, row.end, IsFresh(batch, sample, row), 0.0});
  }
  DriftInput input = {{}, rows.data(), static_cast<int64_t>(rows.size())};
  for (int s = 0; s < streams_.count; ++s) input.streams[s] = sample.values(s);
  DriftTotals totals;
  BestPasses().sum_drift(input, &totals);
  std::vector<HeavySequence> heaviest;
  heaviest.reserve(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    heaviest.push_back({first_sequence + sample.rows[r].sequence,
                        sample.rows[r].size(), rows[r].k3});
  }
  AddTotals(totals);
  AddHeaviest(heaviest);
  sequences_ += input.num_rows;
}

void AttributionSums::Merge(const AttributionSums& other) {
  AddTotals(other.totals_);
  AddHeaviest(other.heaviest_);
  sequences_ += other.sequences_;
}

void AttributionSums::AddTotals(const DriftTotals& more) {
  for (int c = 0; c < kNumDriftColumns; ++c) {
    ExactBins<double> bins = BinsOf(totals_.bins[c]);
    bins.merge(BinsOf(more.bins[c]));
    bins.carry();
    std::copy_n(bins.low, kBins, totals_.bins[c]);
  }
  for (int p = 0; p < kNumPlaces; ++p) {
    for (int m = 0; m < kNumMagnitudes; ++m) {
      totals_.tokens[p][m] += more.tokens[p][m];
    }
  }
  for (int b = 0; b < kNumLogRatios; ++b) {
    totals_.log_ratio_tokens[b] += more.log_ratio_tokens[b];
  }
  for (int b = 0; b < kNumLengths; ++b) {
    totals_.length_tokens[b] += more.length_tokens[b];
  }
  totals_.fresh_tokens += more.fresh_tokens;
}

void AttributionSums::AddHeaviest(const std::vector<HeavySequence>& more) {
  heaviest_.insert(heaviest_.end(), more.begin(), more.end());
  const size_t most = std::min<size_t>(kMostHeaviest, heaviest_.size());
  const auto end = heaviest_.begin() + static_cast<std::ptrdiff_t>(most);
  std::partial_sort(heaviest_.begin(), end, heaviest_.end(), IsHeavier);
  heaviest_.erase(end, heaviest_.end());
}

double AttributionSums::Sum(int column) const {
  // No sum is -0.
  return BinsOf(totals_.bins[column]).take() + 0.0;
}

template <class Tokens, class First>
std::vector<Bucket> AttributionSums::Buckets(int count, int column,
                                             Tokens tokens, First first) const {
  std::vector<Bucket> buckets;
  for (int b = 0; b < count; ++b) {
    if (tokens(b) == 0) continue;
    buckets.push_back({.first = first(b),
                       .tokens = tokens(b),
                       .log_ratio = Sum(column + b),
                       .k3 = Sum(column + count + b)});
  }
  return buckets;
}

Causes AttributionSums::ReadCauses(int64_t tokens) const {
  const double first = Sum(kFirstK3), later = Sum(kLaterK3);
  const double first_kl = 0.0 - Sum(kFirstLogRatio);
  const double later_kl = 0.0 - Sum(kLaterLogRatio);
  Causes causes;
  causes.k3 = (first + later) + Sum(kInteraction);
  causes.kl = first_kl + later_kl;
  // The first pair of tensors is rollout and old, rollout and current, or old
  // and current.
  if (streams_.roles[1] == InputRole::kOld) {
    causes.k3_engine_staleness = first;
    causes.kl_engine_staleness = first_kl;
    causes.fresh_tokens = totals_.fresh_tokens;
    causes.fresh_k3 = Sum(kFreshK3);
  } else if (streams_.roles[0] == InputRole::kOld) {
    causes.k3_update = first;
    causes.kl_update = first_kl;
  }
  if (streams_.count == kMostStreams) {
    causes.k3_update = later;
    causes.kl_update = later_kl;
    causes.k3_interaction = Sum(kInteraction);
  }
  if (causes.fresh_tokens >= kLeastFresh) {
    causes.k3_engine = causes.fresh_k3 /
                       static_cast<double>(causes.fresh_tokens) *
                       static_cast<double>(tokens);
  }
  return causes;
}

Attribution AttributionSums::Read() const {
  const auto& places = totals_.tokens;
  int64_t by_magnitude[kNumMagnitudes] = {};
  int64_t by_place[kNumPlaces] = {};
  Attribution read;
  for (int p = 0; p < kNumPlaces; ++p) {
    for (int m = 0; m < kNumMagnitudes; ++m) {
      by_magnitude[m] += places[p][m];
      by_place[p] += places[p][m];
      read.tokens += places[p][m];
    }
  }
  read.numerator = streams_.roles[streams_.count - 1];
  read.denominator = streams_.roles[0];
  read.sequences = sequences_;
  read.causes = ReadCauses(read.tokens);
  const auto in = [](const int64_t* tokens) {
    return [tokens](int bucket) { return tokens[bucket]; };
  };
  read.by_magnitude =
      Buckets(kNumMagnitudes, kByMagnitude, in(by_magnitude), FirstMagnitude);
  read.by_position = Buckets(kNumPlaces, kByPlace, in(by_place), FirstPlace);
  read.by_length =
      Buckets(kNumLengths, kByLength, in(totals_.length_tokens), FirstLength);
  // Log ratios are cut, so that the lowest bucket begins somewhere.
  const double lowest = -kMostLogRatio * (streams_.count - 1);
  read.by_log_ratio =
      Buckets(kNumLogRatios, kByLogRatio, in(totals_.log_ratio_tokens),
              [lowest](int b) {
                return b == 0 ? lowest : Written(kHistogramEdges[b - 1]);
              });
  auto bucket = read.by_position.begin();
  for (int p = 0; p < kNumPlaces; ++p) {
    if (by_place[p] == 0) continue;
    double expected = 0.0;
    for (int m = 0; m < kNumMagnitudes; ++m) {
      if (places[p][m] == 0) continue;
      expected += static_cast<double>(places[p][m]) *
                  (Sum(kByMagnitude + kNumMagnitudes + m) /
                   static_cast<double>(by_magnitude[m]));
    }
    (bucket++)->k3_expected = expected;
  }
  read.heaviest = heaviest_;
  return read;
}

}  // namespace counterweight::kernels::doctor
