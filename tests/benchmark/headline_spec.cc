#include "tests/benchmark/headline_spec.h"

#include <vector>

#include "kernels/log_ratio.h"
#include "kernels/methods.h"

namespace counterweight::kernels {
namespace {

RejectionRule Rule(Estimator estimator, Aggregation aggregation, double lower,
                   double upper) {
  RejectionRule rule;
  rule.estimator = estimator;
  rule.aggregation = aggregation;
  rule.token_clamp = 20.0;
  rule.lower = lower;
  rule.upper = upper;
  return rule;
}

}  // namespace

CorrectionSpec HeadlineSpec() {
  CorrectionSpec spec = FindMethod("token_tis")->make(std::vector<double>{2.0});
  spec.rules[0] = Rule(Estimator::kRatio, Aggregation::kToken, LogRatio(0.5),
                       LogRatio(2.0));
  spec.rules[1] = Rule(Estimator::kRatio, Aggregation::kMean, LogRatio(0.98),
                       LogRatio(1 / 0.98));
  spec.rules[2] = Rule(Estimator::kK3, Aggregation::kMax, -kUnbounded, 0.5);
  spec.num_rules = 3;
  return spec;
}

}  // namespace counterweight::kernels
