// Where each segment's running means start.
#ifndef COUNTERWEIGHT_KERNELS_WALK_PREFIX_BASES_H_
#define COUNTERWEIGHT_KERNELS_WALK_PREFIX_BASES_H_

#include <cstdint>

#include "kernels/math/host_device.h"
#include "kernels/plan/columns.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/record.h"

namespace counterweight::kernels {
inline namespace COUNTERWEIGHT_ISA {

struct PrefixColumns {
  int sum;
  int count;
};

// Which columns hold prefix p of the plan.
COUNTERWEIGHT_HD PrefixColumns prefix_columns(const Plan& plan, int p) {
  for (int r = 0; r < plan.spec.num_rules; ++r) {
    if (plan.rules[r].prefix == p) {
      return {RuleColumnIndex(r, kRuleAggregate),
              RuleColumnIndex(r, kRuleSeen)};
    }
  }
  return {kColumnWeightAggregate, kColumnWeightSeen};
}

// next [num_prefixes]: what starts from `bases` holds after a segment of these
// sums.
COUNTERWEIGHT_HD void next_bases(const Plan& plan, const double* sums,
                                 const PrefixBase* bases, PrefixBase* next) {
  for (int p = 0; p < plan.num_prefixes; ++p) {
    const PrefixColumns columns = prefix_columns(plan, p);
    next[p] = {bases[p].sum + sums[columns.sum],
               bases[p].count + sums[columns.count]};
  }
}

// bases [segments][num_prefixes]: what the row's earlier segments hold, added
// in order; sums_at(i) points to the sums of the i-th.
template <class SumsAt>
COUNTERWEIGHT_HD void find_bases(const Plan& plan, int64_t segments,
                                 SumsAt sums_at, PrefixBase* bases) {
  for (int p = 0; p < plan.num_prefixes; ++p) {
    const PrefixColumns columns = prefix_columns(plan, p);
    PrefixBase base{0.0, 0.0};
    for (int64_t i = 0; i < segments; ++i) {
      bases[i * plan.num_prefixes + p] = base;
      const double* const sums = sums_at(i);
      base.sum += sums[columns.sum];
      base.count += sums[columns.count];
    }
  }
}

}  // namespace COUNTERWEIGHT_ISA
}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_WALK_PREFIX_BASES_H_
