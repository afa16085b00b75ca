#include "kernels/doctor/row_facts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace counterweight::kernels::doctor {
namespace {

Edges EdgesOf(const float* x, int64_t begin, int64_t end) {
  Edges edges;
  while (begin + edges.head < end && x[begin + edges.head] == 0.0f)
    ++edges.head;
  if (begin + edges.head == end) return {0, 0, true};
  while (x[end - 1 - edges.tail] == 0.0f) ++edges.tail;
  return edges;
}

double Distance(const float* x, const float* y, int64_t i) {
  return std::min(std::fabs(double{y[i]} - double{x[i]}), 4.0);
}

// Zeros are missing numbers, which say nothing about the thread.
double Lost(const float* x, const float* y, int64_t i) {
  return x[i] == 0.0f || y[i] == 0.0f ? 0.0 : Distance(x, y, i);
}

Suffix SuffixOf(const float* x, const float* y, const SampledRow& row) {
  constexpr double kAllowed = 0.25;
  Suffix suffix;
  double sum = 0.0, all = 0.0, least = 0.0, until = 0.0;
  for (int64_t i = row.begin; i < row.end; ++i) {
    if (sum < least) {
      least = sum;
      until = all;
      suffix.at = i - row.begin;
    }
    const double lost = Lost(x, y, i);
    sum += lost - kAllowed;
    all += lost;
  }
  suffix.gain = sum - least;
  suffix.before = until / static_cast<double>(std::max<int64_t>(suffix.at, 1));
  suffix.after = (all - until) / static_cast<double>(row.size() - suffix.at);
  return suffix;
}

int64_t RunEdges(const float* x, const Sample& sample, const SampledRow& row) {
  int64_t zeros = 0;
  int64_t begin = row.begin;
  for (int64_t i = row.begin + 1; i <= row.end; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i < row.end && sample.place[at] == sample.place[at - 1] + 1) continue;
    const Edges edges = EdgesOf(x, begin, i);
    zeros += edges.is_empty ? i - begin : edges.head + edges.tail;
    begin = i;
  }
  return zeros;
}

}  // namespace

RowFacts FindRowFacts(const Sample& sample) {
  RowFacts facts;
  const float* const x = sample.values(0);
  const float* const y = sample.values(1);
  double head_sum = 0.0;
  int64_t head_tokens = 0;
  facts.rows.reserve(sample.rows.size());
  for (const SampledRow& row : sample.rows) {
    RowFact fact;
    for (int64_t i = row.begin; i < row.end; ++i) {
      fact.drift += Distance(x, y, i);
      fact.log_prob += double{x[i]};
    }
    const int64_t third = std::max<int64_t>(row.size() / 3, 1);
    for (int64_t i = 0; i < third; ++i) head_sum += Lost(x, y, row.begin + i);
    head_tokens += third;
    fact.edges[0] = EdgesOf(x, row.begin, row.end);
    fact.edges[1] = EdgesOf(y, row.begin, row.end);
    fact.suffix = SuffixOf(x, y, row);
    facts.run_edges[0] += RunEdges(x, sample, row);
    facts.run_edges[1] += RunEdges(y, sample, row);
    facts.rows.push_back(fact);
  }
  if (head_tokens > 0)
    facts.level = head_sum / static_cast<double>(head_tokens);
  return facts;
}

}  // namespace counterweight::kernels::doctor
