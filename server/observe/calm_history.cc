#include "server/observe/calm_history.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace counterweight::server {

CalmLevel CalmHistory::At(int64_t step) {
  if (Find(step) != nullptr) {
    CalmLevel level = level_ ? *level_ : Measure();
    level.is_calm = false;
    return level;
  }
  if (level_) return *level_;
  CalmLevel level = Measure();
  if (level.is_calm) {
    level_ = level;
    for (Step& each : steps_) each.counts.reset();
    return level;
  }
  if (steps_.size() == kMostCalmSteps) steps_.pop_front();
  steps_.push_back({step, std::make_unique<Counts>()});
  return level;
}

void CalmHistory::Add(const CalmBatch& batch) {
  Step* const step = Find(batch.step);
  if (step == nullptr || step->counts == nullptr) return;
  for (size_t i = 0; i < batch.counts.size(); ++i) {
    (*step->counts)[i] += batch.counts[i];
  }
}

CalmHistory::Step* CalmHistory::Find(int64_t step) {
  const auto found =
      std::find_if(steps_.begin(), steps_.end(),
                   [&](const Step& each) { return each.step == step; });
  return found == steps_.end() ? nullptr : &*found;
}

CalmLevel CalmHistory::Measure() const {
  std::vector<double> squares;
  for (const Step& each : steps_) {
    if (kernels::doctor::NumWeights(*each.counts) == 0) continue;
    squares.push_back(kernels::doctor::MeanSquare(*each.counts));
  }
  CalmLevel level{.steps = static_cast<int64_t>(squares.size())};
  if (squares.empty()) return level;
  const auto median =
      squares.begin() + static_cast<std::ptrdiff_t>((squares.size() - 1) / 2);
  std::nth_element(squares.begin(), median, squares.end());
  Counts all{};
  int64_t calm_steps = 0;
  for (const Step& each : steps_) {
    if (kernels::doctor::NumWeights(*each.counts) == 0 ||
        kernels::doctor::MeanSquare(*each.counts) > kMostOfMedian * *median) {
      continue;
    }
    ++calm_steps;
    for (size_t i = 0; i < all.size(); ++i) all[i] += (*each.counts)[i];
  }
  level.weights = kernels::doctor::NumWeights(all);
  if (squares.size() < kFewestCalmSteps ||
      static_cast<double>(level.weights) < of_.needed_weights()) {
    return level;
  }
  level.is_calm = true;
  level.steps = calm_steps;
  level.bound = std::exp(kernels::doctor::LogQuantile(all, of_.quantile));
  return level;
}

std::optional<CalmLevel> CalmHistories::At(const CalmWeights& weights,
                                           int64_t step) {
  for (CalmHistory& each : histories_) {
    if (each.of() == weights) return each.At(step);
  }
  if (histories_.size() == kMost) return std::nullopt;
  return histories_.emplace_back(weights).At(step);
}

void CalmHistories::Add(const CalmBatch& batch) {
  for (CalmHistory& each : histories_) {
    if (each.of() == batch.of) each.Add(batch);
  }
}

}  // namespace counterweight::server
