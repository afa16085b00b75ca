#include "server/observe/step_series.h"

#include <tuple>
#include <utility>

namespace counterweight::server {

StepSeries::StepSeries(DriftMetrics* metrics, const prometheus::Labels& run)
    : metrics_(metrics),
      run_(run),
      steps_(metrics->run_steps, run, Addends::kCounts),
      ratio_one_(metrics->run_ratio_one_steps, run, Addends::kCounts) {}

void StepSeries::Count(const StepReport& report,
                       const std::vector<StepLedger::ClosedStep>& closed) {
  const auto add = [&](Family<Counter>& family, const std::string& label,
                       const std::string& value, int64_t count) {
    Of(family, label, value).Add(static_cast<double>(count));
  };
  add(metrics_->run_step_tokens, "entry", "trained", report.tokens);
  const Receipt issued = report.issued.value_or(Receipt());
  const Receipt applied = report.applied.value_or(Receipt());
  add(metrics_->run_step_tokens, "entry", "corrected",
      issued.tokens + issued.dropped_tokens);
  add(metrics_->run_step_changed_tokens, "entry", "issued",
      issued.changed_tokens);
  add(metrics_->run_step_changed_tokens, "entry", "applied",
      applied.changed_tokens);
  for (const auto& [reason, batches] : report.skipped_batches) {
    add(metrics_->run_step_skipped_batches, "reason", reason, batches);
  }
  for (const StepLedger::ClosedStep& step : closed) Count(step);
}

void StepSeries::Count(const StepLedger::ClosedStep& step) {
  steps_.Add(1);
  Of(metrics_->run_step_receipts, "state", step.StateName()).Add(1);
  // Shows it before the first.
  ratio_one_.Add(step.is_complete && step.ratio_all_one ? 1 : 0);
}

Total& StepSeries::Of(Family<Counter>& family, const std::string& label,
                      const std::string& value) {
  const bool is_reason = &family == &metrics_->run_step_skipped_batches;
  auto found = others_.find({&family, value});
  if (found == others_.end() && is_reason && num_reasons_ == kMaxReasons) {
    found = others_.find({&family, "other"});
  }
  if (found != others_.end()) return found->second;
  const bool is_other = is_reason && num_reasons_ == kMaxReasons;
  if (is_reason && !is_other) ++num_reasons_;
  const std::string shown = is_other ? "other" : value;
  prometheus::Labels labels = run_;
  labels[label] = shown;
  return others_
      .emplace(std::piecewise_construct, std::forward_as_tuple(&family, shown),
               std::forward_as_tuple(family, labels, Addends::kCounts))
      .first->second;
}

}  // namespace counterweight::server
