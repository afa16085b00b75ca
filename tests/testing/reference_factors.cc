#include "tests/testing/reference_factors.h"

#include <algorithm>
#include <map>

namespace counterweight::kernels {
namespace {

double DoubleCount(const Mask& mask) {
  return static_cast<double>(std::count(mask.begin(), mask.end(), 1));
}

// Token counts of response_mask and of the keep mask.
struct RowTokens {
  double counted = 0.0, kept = 0.0;
  int32_t group = 0;
  double divisor = 1.0;
};

double BatchCountOf(BatchCount count, const std::vector<RowTokens>& rows,
                    int64_t num_groups) {
  if (count == BatchCount::kOne) return 1.0;
  if (count == BatchCount::kGroups) return static_cast<double>(num_groups);
  double sum = 0.0;
  for (const RowTokens& row : rows) {
    if (count == BatchCount::kTokens) sum += row.counted;
    if (count == BatchCount::kKeptTokens) sum += row.kept;
    if (count == BatchCount::kRowTokens) sum += std::max(row.counted, 1.0);
    if (count == BatchCount::kRows) sum += 1.0;
    if (count == BatchCount::kNonemptyRows) sum += row.counted > 0;
    if (count == BatchCount::kKeptRows) sum += row.kept > 0;
  }
  return sum;
}

double Shared(RowCount count, const RowTokens& row, double tokens_of_group) {
  switch (count) {
    case RowCount::kOne:
      return 1.0;
    case RowCount::kTokens:
      return 1.0 / std::max(row.counted, 1.0);
    case RowCount::kKeptTokens:
      return 1.0 / std::max(row.kept, 1.0);
    case RowCount::kGroupTokens:
      return 1.0 / std::max(tokens_of_group, 1.0);
    case RowCount::kPerToken:
      return row.counted;
    case RowCount::kGiven:
      return 1.0 / row.divisor;
  }
  return 0.0;
}

}  // namespace

Factors FactorsOf(const LossReduction& reduction, const Batch& batch,
                  const std::vector<ReferenceRow>& rows,
                  const std::vector<Mask>& kept) {
  std::vector<RowTokens> tokens;
  std::map<int32_t, double> of_group;
  for (size_t i = 0; i < rows.size(); ++i) {
    tokens.push_back(
        {DoubleCount(rows[i].counts), DoubleCount(kept[i]),
         batch.groups == nullptr ? 0 : batch.groups[i],
         batch.row_divisors == nullptr ? 1.0 : batch.row_divisors[i]});
    of_group[tokens[i].group] += tokens[i].counted;
  }
  Factors factors;
  factors.count = BatchCountOf(reduction.count, tokens, batch.num_groups);
  for (const RowTokens& row : tokens) {
    const bool in_no_group =
        reduction.row == RowCount::kGroupTokens && row.group < 0;
    const bool no_part = in_no_group || factors.count == 0;
    factors.of_row.push_back(
        no_part ? 0.0
                : reduction.scale / factors.count *
                      Shared(reduction.row, row, of_group[row.group]));
  }
  return factors;
}

}  // namespace counterweight::kernels
