#include "server/engine/dialects/prime_rl_token_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "server/engine/names.h"

namespace counterweight::server {
namespace {

using kernels::InputRole;

// Adds <name>/mean, /median, /std, /min and /max. The median is the lower one
// of two middle values, the standard deviation that of a sample: NaN for one
// value. Reorders `values`, at least one.
void AddPrimeRlStatistics(std::string_view name, RowNumbers* values,
                          MetricMap* metrics) {
  const auto count = static_cast<double>(values->size());
  double sum = 0.0;
  for (const double x : *values) sum += x;
  const double mean = sum / count;
  double squares = 0.0;
  for (const double x : *values) squares += (x - mean) * (x - mean);
  const auto [low, high] = std::minmax_element(values->begin(), values->end());
  (*metrics)[Concat(name, "/mean")] = mean;
  (*metrics)[Concat(name, "/std")] =
      values->size() > 1 ? std::sqrt(squares / (count - 1.0)) : kNan;
  (*metrics)[Concat(name, "/min")] = *low;
  (*metrics)[Concat(name, "/max")] = *high;
  const auto middle =
      values->begin() + static_cast<ptrdiff_t>((values->size() - 1) / 2);
  std::nth_element(values->begin(), middle, values->end());
  (*metrics)[Concat(name, "/median")] = *middle;
}

// A mean over a row's tokens is 0 where there are none.
double PrimeRlMean(double sum, double count) {
  return sum / std::max(count, 1.0);
}

class PrimeRlPass {
 public:
  // tokens: of the batch; memory is reserved for them.
  PrimeRlPass(PrimeRlType type, int64_t rows, int64_t tokens) : type_(type) {
    mismatch_.reserve(static_cast<size_t>(tokens));
    for (RowNumbers* of_rows : {&lost_, &lost_mismatch_, &kept_mismatch_}) {
      of_rows->reserve(static_cast<size_t>(rows));
    }
    if (type == PrimeRlType::kRefKl) {
      gains_.reserve(static_cast<size_t>(rows));
    }
    if (type != PrimeRlType::kDefault) return;
    for (RowNumbers* of_rows :
         {&lost_low_, &lost_high_, &lost_negative_, &lost_positive_}) {
      of_rows->reserve(static_cast<size_t>(rows));
    }
  }

  void Add(const RowTokens& row) {
    SetMismatch(row);
    Sum lost, kept;
    for (size_t i = 0; i < row.mask.size(); ++i) {
      if (row.mask[i] == 0) continue;
      mismatch_.push_back(of_row_[i]);
      (row.keep[i] != 0 ? kept : lost).Add(of_row_[i]);
    }
    if (type_ == PrimeRlType::kRefKl && !AddGain(row)) return;
    lost_.push_back(PrimeRlMean(lost.count, lost.count + kept.count));
    lost_mismatch_.push_back(PrimeRlMean(lost.sum, lost.count));
    kept_mismatch_.push_back(PrimeRlMean(kept.sum, kept.count));
    if (type_ == PrimeRlType::kDefault) {
      AddSigns(row, lost.count, lost.count + kept.count);
    }
  }

  // Call once.
  void Write(MetricMap* metrics) {
    if (lost_.empty()) return;
    if (!mismatch_.empty()) {
      AddPrimeRlStatistics("mismatch_kl/all", &mismatch_, metrics);
    }
    const std::string_view prefix = PrefixOf(type_);
    AddPrimeRlStatistics(Concat(prefix, "is_masked"), &lost_, metrics);
    AddPrimeRlStatistics(Concat(prefix, "masked_mismatch_kl"), &lost_mismatch_,
                         metrics);
    AddPrimeRlStatistics(Concat(prefix, "unmasked_mismatch_kl"),
                         &kept_mismatch_, metrics);
    if (type_ == PrimeRlType::kRefKl) {
      AddPrimeRlStatistics("ref_kl", &gains_, metrics);
    }
    if (type_ != PrimeRlType::kDefault) return;
    AddPrimeRlStatistics("is_masked_low", &lost_low_, metrics);
    AddPrimeRlStatistics("is_masked_high", &lost_high_, metrics);
    AddPrimeRlStatistics("masked_advantage_negative", &lost_negative_, metrics);
    AddPrimeRlStatistics("masked_advantage_positive", &lost_positive_, metrics);
  }

 private:
  struct Sum {
    double sum = 0.0;
    double count = 0.0;

    void Add(double x) {
      sum += x;
      count += 1.0;
    }
  };

  // exp(h) - 1 - h of the log ratio h of current and rollout policy.
  void SetMismatch(const RowTokens& row) {
    Subtract(row.of(InputRole::kCurrent), row.of(InputRole::kRollout),
             &of_row_);
    Exponentials(of_row_, &exp_, &expm1_);
    for (size_t i = 0; i < of_row_.size(); ++i) {
      of_row_[i] = expm1_[i] - of_row_[i];
    }
  }

  // Adds the mean of ref_kl's derived advantages; false for an empty row, which
  // has no part in its statistics.
  bool AddGain(const RowTokens& row) {
    const std::span<const double> gains = row.of(InputRole::kAdvantages);
    Sum gain;
    for (size_t i = 0; i < row.mask.size(); ++i) {
      if (row.mask[i] != 0) gain.Add(gains[i]);
    }
    if (gain.count == 0.0) return false;
    gains_.push_back(gain.sum / gain.count);
    return true;
  }

  // A lost token with an advantage of 0 is neither low nor high.
  void AddSigns(const RowTokens& row, double lost, double tokens) {
    const std::span<const double> advantages = row.of(InputRole::kAdvantages);
    double negative = 0.0;
    double positive = 0.0;
    for (size_t i = 0; i < row.mask.size(); ++i) {
      if (row.mask[i] == 0 || row.keep[i] != 0) continue;
      if (advantages[i] < 0.0) negative += 1.0;
      if (advantages[i] > 0.0) positive += 1.0;
    }
    lost_low_.push_back(PrimeRlMean(negative, tokens));
    lost_high_.push_back(PrimeRlMean(positive, tokens));
    lost_negative_.push_back(PrimeRlMean(negative, lost));
    lost_positive_.push_back(PrimeRlMean(positive, lost));
  }

  const PrimeRlType type_;
  RowNumbers mismatch_;  // of the batch's tokens
  // Each row's shares of tokens, means over lost and kept ones, and by the
  // advantage's sign shares of the tokens and of the lost ones.
  RowNumbers lost_, lost_mismatch_, kept_mismatch_;
  RowNumbers lost_low_, lost_high_, lost_negative_, lost_positive_;
  RowNumbers gains_;  // means of ref_kl's advantages
  RowNumbers of_row_, exp_, expm1_;
};

}  // namespace

void AddPrimeRlTokenMetrics(PrimeRlType type, const CorrectedTokens& tokens,
                            const kernels::BatchSums& sums,
                            MetricMap* metrics) {
  PrimeRlPass pass(type, tokens.num_rows(), sums.tokens);
  tokens.ForEachRow([&](const RowTokens& row) { pass.Add(row); });
  pass.Write(metrics);
}

}  // namespace counterweight::server
