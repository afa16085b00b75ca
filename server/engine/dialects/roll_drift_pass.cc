#include "server/engine/dialects/roll_drift_pass.h"

#include <cstddef>
#include <string_view>

#include "server/engine/dialects/roll_metrics.h"
#include "server/engine/names.h"

namespace counterweight::server {

using kernels::InputRole;

RollDriftPass::Part RollDriftPass::ReadParts(const RowTokens& row,
                                             double* ratios) {
  const std::span<const double> old = row.of(InputRole::kOld);
  const std::span<const double> rollout = row.of(InputRole::kRollout);
  Subtract(old, rollout, &log_ratio_);
  Exponentials(log_ratio_, &exp_, &expm1_);
  Exponentials(old, &old_, &expm1_);
  Exponentials(rollout, &rollout_, &expm1_);
  runs_.clear();
  Part whole;
  *ratios = 0.0;
  bool is_in_run = false;
  for (size_t i = 0; i < row.mask.size(); ++i) {
    const bool counts = row.mask[i] != 0;
    if (counts) {
      if (!is_in_run) runs_.emplace_back();
      const double difference = old_[i] - rollout_[i];
      for (Part* const part : {&runs_.back(), &whole}) {
        part->tokens += 1.0;
        part->log_ratio += log_ratio_[i];
        part->difference += difference;
      }
      *ratios += exp_[i];
    }
    is_in_run = counts;
  }
  return whole;
}

void RollDriftPass::Add(const RowTokens& row) {
  double ratios = 0.0;
  const Part whole = ReadParts(row, &ratios);
  if (whole.tokens == 0.0) return;
  log_ratio_.clear();
  for (const Part& run : runs_) {
    log_ratio_.push_back(run.log_ratio / (run.tokens + kRollEpsilon));
  }
  const double divisor = whole.tokens + kRollEpsilon;
  log_ratio_.push_back(whole.log_ratio / divisor);
  log_ratio_.push_back(whole.log_ratio);
  Exponentials(log_ratio_, &exp_, &expm1_);
  // The mean of a value that the row's tokens share.
  const double share = whole.tokens / divisor;
  ratio_[kToken] += ratios / divisor;
  ratio_[kGeometric] += exp_[runs_.size()] * share;
  ratio_[kSequence] += exp_[runs_.size() + 1] * share;
  difference_[kToken] += whole.difference / divisor;
  difference_[kGeometric] += whole.difference / divisor * share;
  difference_[kSequence] += whole.difference * share;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const Part& run = runs_[i];
    const double part = run.tokens / divisor;
    ratio_[kSegment] += exp_[i] * part;
    difference_[kSegment] +=
        run.difference / (run.tokens + kRollEpsilon) * part;
  }
}

void RollDriftPass::Write(double rows, MetricMap* metrics) const {
  constexpr std::string_view kNames[kNumLevels] = {"token", "geometric",
                                                   "sequence", "segment"};
  for (int level = 0; level < kNumLevels; ++level) {
    const auto name = [&](std::string_view kind) {
      return Concat("actor/train_infer_", kind, "_", kNames[level],
                    "_mean@sum");
    };
    (*metrics)[name("ratio")] = ratio_[level] / rows;
    (*metrics)[name("diff")] = difference_[level] / rows;
  }
}

}  // namespace counterweight::server
