#include "server/observe/doctor_series.h"

#include <string_view>
#include <tuple>
#include <utility>

namespace counterweight::server {

DoctorSeries::DoctorSeries(DriftMetrics* metrics, const prometheus::Labels& run)
    : metrics_(metrics),
      run_(run),
      examined_(metrics->run_examined_batches, run, Addends::kCounts) {}

bool DoctorSeries::IsDue() const {
  return num_examined_ < kFirst || !last_faults_.empty() ||
         batches_ - last_examined_ >= kEvery;
}

void DoctorSeries::Count(const std::vector<Fault>& faults) {
  examined_.Add(1);
  ++num_examined_;
  last_examined_ = batches_;
  last_faults_.clear();
  for (const std::string_view severity : {"error", "warning"}) {
    for (const Fault& fault : faults) {
      if (fault.severity == severity) last_faults_.push_back(fault.name);
    }
  }
  for (const Fault& fault : faults) {
    auto found = findings_.find(fault.name);
    if (found == findings_.end()) {
      prometheus::Labels labels = run_;
      labels["finding"] = fault.name;
      labels["severity"] = fault.severity;
      found = findings_
                  .emplace(std::piecewise_construct,
                           std::forward_as_tuple(fault.name),
                           std::forward_as_tuple(metrics_->run_findings, labels,
                                                 Addends::kCounts))
                  .first;
    }
    found->second.Add(1);
  }
}

}  // namespace counterweight::server
