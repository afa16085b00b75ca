#include "server/observe/run_steps.h"

#include <algorithm>

namespace counterweight::server {
namespace {

using kernels::Agreed;
using kernels::PartialSums;

bool AreOfOneMethod(const PartialSums& a, const PartialSums& b) {
  const auto same = [&](Agreed what) {
    return AgreedOn(a, what) == AgreedOn(b, what);
  };
  return HaveSameSizes(a, b) && same(Agreed::kMethod) && same(Agreed::kFacts) &&
         same(Agreed::kWidth) && same(Agreed::kWeightMean);
}

}  // namespace

bool RunSteps::Add(const StepPart& part, const PublishedBatch& batch,
                   StepBatch* step) {
  // Steps may be skipped: the newest two are those that were seen.
  std::vector<int64_t> steps = {part.step};
  for (const Sums& each : sums_) steps.push_back(each.step);
  std::sort(steps.rbegin(), steps.rend());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  if (steps.size() > kMaxSteps) {
    const int64_t oldest = steps[kMaxSteps - 1];
    if (part.step >= oldest) {
      std::erase_if(sums_,
                    [&](const Sums& each) { return each.step < oldest; });
    } else if (++num_late_ < kMostLate) {
      return false;
    } else {
      sums_.clear();
      steps = {part.step};
    }
  }
  num_late_ = 0;
  Sums& all = FindOrAdd(part);
  *step = {
      .step = part.step,
      .parts = static_cast<int64_t>(all.sums.whole[kernels::kPartialParts]),
      .is_newest = part.step == steps.front(),
      .batch = part.publish(all.sums)};
  // Losses that each divide by their batch's own counts do not add up.
  if (all.sums.whole[kernels::kPartialCoupled] > 0.0) {
    step->batch.sums.loss = batch.sums.loss;
  }
  return true;
}

RunSteps::Sums& RunSteps::FindOrAdd(const StepPart& part) {
  const auto found =
      std::find_if(sums_.begin(), sums_.end(), [&](const Sums& each) {
        return each.step == part.step && AreOfOneMethod(each.sums, part.sums);
      });
  if (found != sums_.end()) {
    Merge(part.sums, &found->sums);
    return *found;
  }
  if (sums_.size() == kMaxSums) sums_.erase(sums_.begin());
  return sums_.emplace_back(Sums{part.step, part.sums});
}

}  // namespace counterweight::server
