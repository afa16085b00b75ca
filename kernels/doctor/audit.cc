#include "kernels/doctor/audit.h"

#include <algorithm>
#include <cmath>

#include "kernels/averages.h"
#include "kernels/doctor/tensor_reader.h"
#include "kernels/math/exact_sum.h"
#include "kernels/math/exp.h"

namespace counterweight::kernels::doctor {
namespace {

constexpr double kIntervalFactor = 2.2;
constexpr float kMostNats = 20.0F;
constexpr int64_t kAuditChunk = 1024;

// The numbers of AuditSums: counts, then the bins of sums.
enum Count : int { kAuditedRowCount, kAuditedTokenCount, kNumAuditCounts };
enum Binned : int {
  kSumOfK3,
  kSumOfSquaredK3,
  kSumOfK3Tokens,
  kSumOfSquaredTokens,
  kNumAuditSums
};
static_assert(kAuditNumbers == kNumAuditCounts + kNumAuditSums * kBins);

struct RowSum {
  int64_t tokens = 0;
  double k3 = 0.0;
};

RowSum SumOfRow(const Batch& batch, InputRole trained, int64_t row) {
  float rollout[kAuditChunk];
  float other[kAuditChunk];
  ExactSum k3;
  RowSum sum;
  const int64_t end = batch.offsets[row + 1];
  for (int64_t at = batch.offsets[row]; at < end; at += kAuditChunk) {
    const int64_t n = std::min(kAuditChunk, end - at);
    Read(batch.tensor(InputRole::kRollout), at, n, rollout);
    Read(batch.tensor(trained), at, n, other);
    for (int64_t i = 0; i < n; ++i) {
      const float l = other[i] - rollout[i];
      if (batch.response_mask[at + i] == 0 || !std::isfinite(l)) continue;
      ++sum.tokens;
      k3.add(exp_terms(std::clamp(l, -kMostNats, kMostNats)).k3);
    }
  }
  sum.k3 = k3.sum();
  return sum;
}

void Add(double x, double* bins) {
  ExactBins<double> sum;
  sum.clear();
  std::copy_n(bins, kBins, sum.low);
  sum.add(x);
  sum.carry();
  std::copy_n(sum.low, kBins, bins);
}

double SumOf(std::span<const double> sums, Binned which) {
  ExactBins<double> sum;
  sum.clear();
  std::copy_n(sums.data() + kNumAuditCounts + which * kBins, kBins, sum.low);
  return sum.take();
}

// Rows like those of the interval that make its half the wanted one.
int64_t MoreRows(double half, int64_t rows) {
  if (half <= kKnown) return 0;
  const double all =
      std::ceil(static_cast<double>(rows) * half * half / (kKnown * kKnown));
  constexpr double kMost = 1e15;  // of no use, and exact
  return static_cast<int64_t>(std::min(all, kMost)) - rows;
}

}  // namespace

AuditSums SumsOfRows(const Batch& batch, InputRole trained,
                     const std::span<const int64_t>* audited) {
  AuditSums sums(kAuditNumbers);
  const int64_t rows = audited != nullptr
                           ? static_cast<int64_t>(audited->size())
                           : batch.num_sequences;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row =
        audited != nullptr ? (*audited)[static_cast<size_t>(i)] : i;
    const RowSum sum = SumOfRow(batch, trained, row);
    if (sum.tokens == 0) continue;
    const auto n = static_cast<double>(sum.tokens);
    sums[kAuditedRowCount] += 1.0;
    sums[kAuditedTokenCount] += n;
    const double of_row[kNumAuditSums] = {sum.k3, sum.k3 * sum.k3, sum.k3 * n,
                                          n * n};
    for (int k = 0; k < kNumAuditSums; ++k) {
      Add(of_row[k], sums.data() + kNumAuditCounts + k * kBins);
    }
  }
  return sums;
}

void AddAuditSums(std::span<const double> from, AuditSums* to) {
  for (size_t i = 0; i < from.size(); ++i) (*to)[i] += from[i];
  for (int k = 0; k < kNumAuditSums; ++k) {
    Add(0.0, to->data() + kNumAuditCounts + k * kBins);
  }
}

bool AreAuditSums(std::span<const double> sums) {
  if (sums.size() != size_t{kAuditNumbers}) return false;
  const auto is_count = [](double x) {
    return x >= 0.0 && x <= 0x1p53 && x == std::floor(x);
  };
  // Those of many batches too; products of means and sums stay finite.
  const auto is_bin = [](double x) { return std::abs(x) <= 0x1p160; };
  return std::all_of(sums.begin(), sums.begin() + kNumAuditCounts, is_count) &&
         std::all_of(sums.begin() + kNumAuditCounts, sums.end(), is_bin) &&
         sums[kAuditedRowCount] <= sums[kAuditedTokenCount];
}

AuditedDrift DriftOf(std::span<const double> sums) {
  AuditedDrift drift;
  drift.rows = static_cast<int64_t>(sums[kAuditedRowCount]);
  drift.tokens = static_cast<int64_t>(sums[kAuditedTokenCount]);
  const double k3 = SumOf(sums, kSumOfK3);
  drift.k3 = Mean(k3, drift.tokens);
  drift.more_rows = std::max<int64_t>(kFewestAuditedRows - drift.rows, 0);
  if (drift.rows < kFewestAuditedRows) return drift;
  const double mean = drift.k3;
  if (!(mean > 0.0)) {
    drift.interval = {0.0, 0.0};
    return drift;
  }
  const auto m = static_cast<double>(drift.rows);
  // Sum of (K - R n)^2; rounding may leave less than 0.
  const double squares =
      std::max(0.0, SumOf(sums, kSumOfSquaredK3) -
                        2.0 * mean * SumOf(sums, kSumOfK3Tokens) +
                        mean * mean * SumOf(sums, kSumOfSquaredTokens));
  const double error =
      std::sqrt(m * squares / (m - 1.0)) / static_cast<double>(drift.tokens);
  const double half = kIntervalFactor * error / mean;
  drift.interval = {mean * std::exp(-half), mean * std::exp(half)};
  drift.more_rows = MoreRows(half, drift.rows);
  return drift;
}

}  // namespace counterweight::kernels::doctor
