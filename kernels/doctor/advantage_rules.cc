// Advantages, over every row of the batch: a sample would cut groups.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/doctor/examination.h"
#include "kernels/doctor/tensor_reader.h"
#include "kernels/math/bits.h"

namespace counterweight::kernels::doctor {
namespace {

// A row with tokens that count, and the mean of its advantages.
struct RowMean {
  int64_t sequence;
  double mean;
};

struct Advantages {
  std::vector<RowMean> rows;
  int64_t negative = 0;
  int64_t positive = 0;
  int64_t non_finite = 0;
};

Advantages ReadAdvantages(const Batch& batch) {
  Advantages found;
  const TensorView& tensor = batch.tensor(InputRole::kAdvantages);
  std::vector<float> row;
  for (int64_t sequence = 0; sequence < batch.num_sequences; ++sequence) {
    const int64_t begin = batch.offsets[sequence];
    const int64_t n = batch.offsets[sequence + 1] - begin;
    row.resize(static_cast<size_t>(n));
    Read(tensor, begin, n, row.data());
    double sum = 0.0;
    // Counters of the loop alone, without branches, as both ways are as likely.
    int64_t tokens = 0, negative = 0, positive = 0, non_finite = 0;
    const float* const advantages = row.data();
    const uint8_t* const mask = batch.response_mask + begin;
    for (int64_t i = 0; i < n; ++i) {
      const bool counts = mask[i] != 0;
      const bool is_number = is_finite(advantages[i]);
      const float advantage = counts & is_number ? advantages[i] : 0.0f;
      sum += double{advantage};
      negative += advantage < 0.0f;
      positive += advantage > 0.0f;
      tokens += counts & is_number;
      non_finite += counts & !is_number;
    }
    found.negative += negative;
    found.positive += positive;
    found.non_finite += non_finite;
    if (tokens > 0) {
      found.rows.push_back({sequence, sum / static_cast<double>(tokens)});
    }
  }
  return found;
}

bool AllEqual(const std::vector<RowMean>& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](const RowMean& row) {
    return row.mean == rows.front().mean;
  });
}

void GroupRule(Examination* e, const std::vector<RowMean>& rows) {
  // By group, then by sequence.
  std::vector<std::pair<int64_t, const RowMean*>> sorted;
  sorted.reserve(rows.size());
  for (const RowMean& row : rows) {
    sorted.emplace_back(e->group_ids[row.sequence], &row);
  }
  std::stable_sort(
      sorted.begin(), sorted.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t off = 0, not_zero = 0, example = -1;
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    double sum = 0.0, size = 0.0;
    for (; end < sorted.size() && sorted[end].first == sorted[begin].first;
         ++end) {
      sum += sorted[end].second->mean;
      size += std::fabs(sorted[end].second->mean);
    }
    not_zero += size > 0.0;
    if (end - begin < 2 || !(size > 0.0) ||
        std::fabs(sum) <= 0.02 * std::max(size, 1e-9)) {
      continue;
    }
    if (off == 0) example = sorted[begin].second->sequence;
    ++off;
  }
  if (off < 1 || 2 * off <= not_zero) return;
  Finding& finding =
      e->Add(Name::kAdvantagesNotCentred, 0.8, Stream::kAdvantages);
  finding.evidence = {{"groups", static_cast<double>(off)}};
  finding.sequence = example;
}

}  // namespace

void AdvantageRules(Examination* e) {
  if (e->batch.tensor(InputRole::kAdvantages).data == nullptr) return;
  const Advantages found = ReadAdvantages(e->batch);
  const auto rows = static_cast<double>(found.rows.size());
  if (found.non_finite > 0) {
    Finding& finding = e->Add(Name::kNonFinite, 1.0, Stream::kAdvantages);
    finding.evidence = {{"tokens", static_cast<double>(found.non_finite)}};
  }
  if (found.rows.empty()) return;
  if (found.negative + found.positive == 0) {
    e->Add(Name::kAdvantagesZero, 1.0, Stream::kAdvantages);
  } else if (rows >= 4 && AllEqual(found.rows)) {
    Finding& finding = e->Add(Name::kAdvantagesEqual, 1.0, Stream::kAdvantages);
    finding.evidence = {{"rows", rows}, {"value", found.rows.front().mean}};
  } else if (rows >= 8 && (found.negative == 0 || found.positive == 0)) {
    Finding& finding =
        e->Add(Name::kAdvantagesOneSign, rows / 16.0, Stream::kAdvantages);
    finding.evidence = {{"rows", rows}};
  } else if (e->group_ids != nullptr && rows >= 16) {
    GroupRule(e, found.rows);
  }
}

}  // namespace counterweight::kernels::doctor
