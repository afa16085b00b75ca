// Rules about rows: tails, permutations, tokens that do not match, copies.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/doctor/examination.h"
#include "kernels/doctor/row_match.h"

namespace counterweight::kernels::doctor {
namespace {

bool LosesTheThread(const SampledRow& row, const Suffix& suffix, double level) {
  return row.size() >= 8 && suffix.gain > 3.0 + 20.0 * level &&
         row.size() - suffix.at >= 5 && suffix.at >= 3 &&
         suffix.after > std::max(0.45, 5.0 * level) &&
         suffix.before < 0.25 * suffix.after;
}

}  // namespace

void TailRule(Examination* e) {
  constexpr Names kExplained =
      kRepaired | Names{Name::kCountOffByOne, Name::kPositiveLogProbs,
                        Name::kOldEqualsRollout, Name::kSentinel};
  if (e->found.meets(kExplained)) return;
  int64_t lost = 0, long_rows = 0, first = -1;
  double after = 0.0;
  for (size_t row = 0; row < e->sample.rows.size(); ++row) {
    const SampledRow& at = e->sample.rows[row];
    const Suffix& suffix = e->rows.rows[row].suffix;
    long_rows += at.size() >= 8;
    if (!LosesTheThread(at, suffix, e->rows.level)) continue;
    if (lost == 0) first = at.begin + suffix.at;
    ++lost;
    after += suffix.after;
  }
  const auto count = static_cast<double>(lost);
  if (count < std::max(2.0, 0.05 * static_cast<double>(long_rows))) return;
  Finding& finding = e->Add(Name::kTailRetokenised, 0.5 + count / 10.0);
  finding.observed = after / count;
  finding.evidence = {{"rows", count}, {"after", after / count}};
  e->SetExample(first, &finding);
}

void PermutedRule(Examination* e) {
  constexpr Names kExplained =
      kRepaired | Names{Name::kCountOffByOne, Name::kTailRetokenised};
  const auto rows = static_cast<double>(e->sample.rows.size());
  if (rows < 2.0 || e->found.meets(kExplained)) return;
  bool drifts = false;
  for (size_t row = 0; row < e->sample.rows.size(); ++row) {
    const auto size = static_cast<double>(e->sample.rows[row].size());
    drifts = drifts || e->rows.rows[row].drift > 0.3 * size;
  }
  if (!drifts) return;
  const Matches found = FindOtherRows(e->sample);
  if (found.matches.size() < 2) return;
  // The rows that were not tried fit as often.
  const double fit = static_cast<double>(found.matches.size()) *
                     static_cast<double>(found.unfit) /
                     static_cast<double>(found.tried);
  if (fit < 0.03 * rows) return;
  const Match& match = found.matches.front();
  const auto sampled = [e](int64_t row) {
    return e->sample.rows[static_cast<size_t>(row)];
  };
  Finding& finding = e->Add(Name::kRowsPermuted, 0.9);
  finding.evidence = {
      {"rows", static_cast<double>(found.matches.size())},
      {"other", static_cast<double>(sampled(match.other).sequence)}};
  e->SetExample(sampled(match.row).begin, &finding);
}

void UnmatchedRule(Examination* e) {
  constexpr Names kExplained =
      kRepaired | Names{Name::kCountOffByOne, Name::kRowsPermuted,
                        Name::kTailRetokenised, Name::kOldEqualsRollout};
  const double n = e->pair[kLogits];
  const bool is_named = e->is_named[0] || e->is_named[1] || e->is_named[2];
  if (n < 48.0 || is_named || e->pair_is_equal() ||
      e->found.meets(kExplained)) {
    return;
  }
  const double x = e->pair[kLogitX] / n, y = e->pair[kLogitY] / n;
  const double xx = e->pair[kLogitXX] / n - x * x;
  const double yy = e->pair[kLogitYY] / n - y * y;
  const double xy = e->pair[kLogitXY] / n - x * y;
  const double correlation = xy / std::sqrt(std::max(xx * yy, 1e-300));
  if (!(correlation < 0.75)) return;
  Finding& finding = e->Add(Name::kUnmatched, 1.0 - correlation);
  finding.evidence = {{"correlation", correlation}};
  e->SetExample(0, &finding);
}

void DuplicateRule(Examination* e) {
  const Names explained = kRepaired.without(Name::kShifted);
  if (e->found.meets(explained | Names{Name::kSentinel})) return;
  const std::vector<int64_t> copies = FindCopies(e->sample, e->rows);
  if (copies.size() < 2) return;
  const auto count = static_cast<double>(copies.size());
  Finding& finding = e->Add(Name::kDuplicatedRows, 0.5 + count / 8.0);
  finding.evidence = {{"rows", count}};
  // Original and copy are alike: the example is the first of them.
  e->SetExample(e->sample.rows[static_cast<size_t>(copies.front())].begin,
                &finding);
}

}  // namespace counterweight::kernels::doctor
