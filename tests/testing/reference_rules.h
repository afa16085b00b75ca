// The reference's rejection rules, one row at a time.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_RULES_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_RULES_H_

#include <vector>

#include "kernels/spec.h"
#include "tests/testing/reference_inputs.h"

namespace counterweight::kernels {

// Compares numbers, and keeps the smallest distance.
class Margin {
 public:
  bool Above(double x, double bound);
  bool Below(double x, double bound) { return Above(bound, x); }
  double smallest() const { return smallest_; }
  // The same in the units of the statistics, for inputs that move by a step.
  double smallest_distance() const { return smallest_distance_; }

 private:
  double smallest_ = kUnbounded;
  double smallest_distance_ = kUnbounded;
};

// The mean of f(t) over each token's turn, 0 where no token counts. Tokens that
// policy DROP removed end no turn.
template <class F>
std::vector<double> TurnMeansOf(const ReferenceRow& row, F f) {
  std::vector<double> means(row.size(), 0.0);
  const auto is_in_turn = [&](int64_t t) {
    return t < row.size() && (row.counts[t] || row.dropped[t]);
  };
  for (int64_t t = 0; t < row.size(); ++t) {
    if (!is_in_turn(t)) continue;
    double sum = 0.0;
    int64_t count = 0, end = t;
    for (; is_in_turn(end); ++end) {
      sum += row.counts[end] ? f(end) : 0.0;
      count += row.counts[end];
    }
    for (; t < end; ++t) means[t] = row.counts[t] ? sum / count : 0.0;
  }
  return means;
}

// One rule on one row. Vectors are [length], read where seen.
struct RuleOutcome {
  Mask seen;
  bool row_seen = false;  // some token was
  std::vector<double> x;  // statistic of the token, or of its sequence
  double q = 0.0;     // of the row; TOKEN, PREFIX_MEAN, TURN_MEAN, ALL: mean
  Mask above, below;  // x outside its interval
  bool row_above = false;
  bool row_below = false;
  Mask fired;  // seen, outside, and the condition holds
};

RuleOutcome ApplyRule(const RejectionRule& rule, const ReferenceRow& row,
                      const Mask& seen, Margin& margin);

struct RowVerdict {
  std::vector<RuleOutcome> rules;
  // counts, less what the first n rules dropped; [num_rules + 1].
  std::vector<Mask> left_after;
  Mask keep;    // left_after.back()
  Mask zeroed;  // some ZERO_WEIGHT rule fired
};

RowVerdict ApplyRules(const CorrectionSpec& spec, const ReferenceRow& row,
                      Margin& margin);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_RULES_H_
