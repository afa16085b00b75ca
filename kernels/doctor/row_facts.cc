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

// One pass over a row. Zeros are missing numbers, and no sign that it stops to
// fit.
void FindSums(const float* x, const float* y, const SampledRow& row,
              RowFact* fact, double* head_sum) {
  constexpr double kAllowed = 0.25;
  const int64_t third = std::max<int64_t>(row.size() / 3, 1);
  Suffix& suffix = fact->suffix;
  double sum = 0.0, all = 0.0, least = 0.0, until = 0.0;
  // Numbers of the loop alone stay in registers.
  double drift = 0.0, log_prob = 0.0;
  int64_t at = 0;
  const auto add = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (sum < least) {
        least = sum;
        until = all;
        at = i - row.begin;
      }
      const double distance = Distance(x, y, i);
      const bool is_missing = (x[i] == 0.0f) | (y[i] == 0.0f);
      const double lost = is_missing ? 0.0 : distance;
      drift += distance;
      log_prob += double{x[i]};
      sum += lost - kAllowed;
      all += lost;
    }
  };
  const int64_t end_of_head = std::min(row.begin + third, row.end);
  add(row.begin, end_of_head);
  *head_sum += all;
  add(end_of_head, row.end);
  fact->drift = drift;
  fact->log_prob = log_prob;
  suffix.at = at;
  suffix.gain = sum - least;
  suffix.before = until / static_cast<double>(std::max<int64_t>(suffix.at, 1));
  suffix.after = (all - until) / static_cast<double>(row.size() - suffix.at);
}

int64_t EdgeZeros(const float* x, int64_t begin, int64_t end) {
  const Edges edges = EdgesOf(x, begin, end);
  return edges.is_empty ? end - begin : edges.head + edges.tail;
}

// Adds the zeros at the ends of the mask's runs in a row, of both streams.
void AddRunEdges(const Sample& sample, const SampledRow& row, int64_t* zeros) {
  const int64_t* const place = sample.place.data();
  int64_t begin = row.begin;
  while (begin < row.end) {
    int64_t end = begin + 1;
    // Most rows are one run.
    if (place[row.end - 1] - place[begin] == row.end - 1 - begin) end = row.end;
    while (end < row.end && place[end] == place[end - 1] + 1) ++end;
    zeros[0] += EdgeZeros(sample.values(0), begin, end);
    zeros[1] += EdgeZeros(sample.values(1), begin, end);
    begin = end;
  }
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
    FindSums(x, y, row, &fact, &head_sum);
    head_tokens += std::max<int64_t>(row.size() / 3, 1);
    fact.edges[0] = EdgesOf(x, row.begin, row.end);
    fact.edges[1] = EdgesOf(y, row.begin, row.end);
    AddRunEdges(sample, row, facts.run_edges);
    facts.rows.push_back(fact);
  }
  if (head_tokens > 0)
    facts.level = head_sum / static_cast<double>(head_tokens);
  return facts;
}

}  // namespace counterweight::kernels::doctor
