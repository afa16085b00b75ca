// The work of the design's targets.
#ifndef COUNTERWEIGHT_TESTS_BENCHMARK_HEADLINE_SPEC_H_
#define COUNTERWEIGHT_TESTS_BENCHMARK_HEADLINE_SPEC_H_

#include "kernels/spec.h"

namespace counterweight::kernels {

// token_tis+3_rules: token weights truncated at 2, a rule on each token's
// ratio, one on the sequence's mean ratio and one on its largest k3.
// headline.py has the same bounds.
CorrectionSpec HeadlineSpec();

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_BENCHMARK_HEADLINE_SPEC_H_
