#include "server/observe/doctor_series.h"

#include <string_view>
#include <tuple>
#include <utility>

#include "server/engine/codec_audit.h"

namespace counterweight::server {

DoctorSeries::DoctorSeries(DriftMetrics* metrics, const prometheus::Labels& run)
    : metrics_(metrics),
      run_(run),
      examined_(metrics->run_examined_batches, run, Addends::kCounts) {}

bool DoctorSeries::IsDue() const {
  return num_examined_ < kFirst || !last_faults_.empty() ||
         batches_ + 1 - last_examined_ >= kEvery;
}

void DoctorSeries::CountBatch(TimedGauge::Time now) {
  ++batches_;
  for (auto& [name, cause] : causes_) {
    if (cause.k3) cause.gauge.Set(*cause.k3, now);
  }
}

void DoctorSeries::HideGaugesBefore(TimedGauge::Time oldest) {
  for (auto& [name, cause] : causes_) cause.gauge.HideIfBefore(oldest);
  for (auto& [name, bound] : bounds_) bound.HideIfBefore(oldest);
}

void DoctorSeries::CountAudited(std::span<const double> sums,
                                TimedGauge::Time now) {
  const int64_t before = audited_.Drift().rows;
  audited_.Add(sums);
  const kernels::doctor::AuditedDrift drift = audited_.Drift();
  if (!audited_rows_) {
    audited_rows_.emplace(metrics_->run_audited_rows, run_, Addends::kCounts);
  }
  // A pool that began anew has the new rows alone.
  const int64_t added = drift.rows > before ? drift.rows - before : drift.rows;
  audited_rows_->Add(static_cast<double>(added));
  if (drift.tokens == 0) return;
  last_audit_ = SentenceOfAudit(drift);
  ShowBound("mean", drift.k3, now);
  if (drift.interval) {
    ShowBound("low", drift.interval->low, now);
    ShowBound("high", drift.interval->high, now);
  }
}

void DoctorSeries::ShowBound(const std::string& bound, double k3,
                             TimedGauge::Time now) {
  prometheus::Labels labels = run_;
  labels["bound"] = bound;
  bounds_.try_emplace(bound, metrics_->run_audited_k3, labels)
      .first->second.Set(k3, now);
}

void DoctorSeries::Count(const Examined& examined, TimedGauge::Time now) {
  examined_.Add(1);
  ++num_examined_;
  last_examined_ = batches_;
  last_why_ = examined.why;
  CountFindings(examined.faults);
  for (auto& [name, cause] : causes_) cause.k3.reset();
  for (const Cause& cause : examined.causes) {
    prometheus::Labels labels = run_;
    labels["cause"] = cause.name;
    CauseGauge& shown =
        causes_.try_emplace(cause.name, metrics_, labels).first->second;
    shown.k3 = cause.k3;
    shown.gauge.Set(cause.k3, now);
  }
  // The gauges are of one batch, so that they add up to its k3.
  for (auto& [name, cause] : causes_) {
    if (!cause.k3) cause.gauge.HideIfBefore(TimedGauge::Time::max());
  }
}

void DoctorSeries::CountFindings(const std::vector<Fault>& faults) {
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
