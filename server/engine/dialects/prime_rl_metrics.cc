#include "server/engine/dialects/prime_rl_metrics.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "server/engine/names.h"

namespace counterweight::server {
namespace {

using kernels::BatchSums;

// exp(h) - 1 - h.
double PrimeRlMismatch(double h) { return std::expm1(h) - h; }

// `value` in every one of `count` places: their standard deviation is that of a
// sample.
void AddEqualRows(std::string_view name, double value, int64_t count,
                  MetricMap* metrics) {
  for (const std::string_view statistic : {"mean", "median", "min", "max"}) {
    (*metrics)[Concat(name, "/", statistic)] = value;
  }
  (*metrics)[Concat(name, "/std")] = count > 1 ? 0.0 : kNan;
}

void AddPrimeRlMismatch(const BatchSums& sums, MetricMap* metrics) {
  constexpr std::string_view kName = "mismatch_kl/all";
  if (sums.tokens == 0) {
    AddEqualRows(kName, kNan, 0, metrics);
    return;
  }
  const double mean = sums.drift.k3 / static_cast<double>(sums.tokens);
  if (sums.tokens == 1) {
    AddEqualRows(kName, mean, 1, metrics);
    return;
  }
  const kernels::Extrema& h = sums.drift.log_ratio_range;
  const double at_low = PrimeRlMismatch(h.min);
  const double at_high = PrimeRlMismatch(h.max);
  (*metrics)[Concat(kName, "/mean")] = mean;
  (*metrics)[Concat(kName, "/max")] = std::max(at_low, at_high);
  // On one side of 0 it falls or rises.
  if (h.min >= 0.0 || h.max <= 0.0) {
    (*metrics)[Concat(kName, "/min")] = std::min(at_low, at_high);
  }
}

}  // namespace

void AddPrimeRlMetrics(PrimeRlType type, const BatchSums& sums,
                       MetricMap* metrics) {
  AddPrimeRlMismatch(sums, metrics);
  // Rows' shares and means are known from sums where no token is lost: 0.
  // ref_kl skips empty ones.
  const int64_t rows = type == PrimeRlType::kRefKl ? sums.nonempty_sequences
                                                   : sums.num_sequences;
  if (sums.kept_tokens < sums.tokens || rows == 0) return;
  const std::string_view prefix = PrefixOf(type);
  AddEqualRows(Concat(prefix, "is_masked"), 0.0, rows, metrics);
  AddEqualRows(Concat(prefix, "masked_mismatch_kl"), 0.0, rows, metrics);
  if (sums.tokens == 0) {
    AddEqualRows("unmasked_mismatch_kl", 0.0, rows, metrics);
  }
  if (type != PrimeRlType::kDefault) return;
  for (const std::string_view name :
       {"is_masked_low", "is_masked_high", "masked_advantage_positive",
        "masked_advantage_negative"}) {
    AddEqualRows(name, 0.0, rows, metrics);
  }
}

}  // namespace counterweight::server
