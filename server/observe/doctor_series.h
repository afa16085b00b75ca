// The Prometheus series of what the doctor finds in one run's batches.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_DOCTOR_SERIES_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_DOCTOR_SERIES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/engine/audit_pool.h"
#include "server/engine/examination.h"
#include "server/observe/metrics.h"
#include "server/observe/series.h"
#include "server/observe/total.h"

namespace counterweight::server {

// Chooses the batches to examine: the first ones of a run, then one of many,
// and each after one with a fault. Not thread-safe.
class DoctorSeries {
 public:
  static constexpr int64_t kFirst = 3;
  static constexpr int64_t kEvery = 64;

  // `metrics` must outlive this.
  DoctorSeries(DriftMetrics* metrics, const prometheus::Labels& run);

  // Counts a batch of the run, which keeps the gauges of the last examination.
  void CountBatch(TimedGauge::Time now);
  // True if the next batch is to be examined.
  bool IsDue() const;
  // Counts an examined batch, and shows its causes.
  void Count(const Examined& examined, TimedGauge::Time now);
  // Adds a batch's audited rows, and shows the run's drift by all.
  void CountAudited(std::span<const double> sums, TimedGauge::Time now);
  // Hides the gauges if the last batch is from before `oldest`.
  void HideGaugesBefore(TimedGauge::Time oldest);

  // Errors and warnings of the last examined batch, errors first.
  const std::vector<std::string>& LastFaults() const { return last_faults_; }
  // Examined::why of that batch.
  const std::string& LastWhy() const { return last_why_; }
  // The drift of the audited rows for a person; empty without any.
  const std::string& LastAudit() const { return last_audit_; }

 private:
  struct CauseGauge {
    CauseGauge(DriftMetrics* metrics, const prometheus::Labels& labels)
        : gauge(metrics->run_cause_k3, labels) {}

    TimedGauge gauge;
    std::optional<double> k3;  // of the last examined batch, if it has it
  };

  // A series of counterweight_doctor_audited_k3_nats.
  void ShowBound(const std::string& bound, double k3, TimedGauge::Time now);
  void CountFindings(const std::vector<Fault>& faults);

  DriftMetrics* const metrics_;
  const prometheus::Labels run_;
  Total examined_;
  AuditPool audited_;
  std::optional<Total> audited_rows_;
  std::map<std::string, TimedGauge> bounds_;
  std::map<std::string, Total> findings_;
  int64_t batches_ = 0;
  int64_t num_examined_ = 0;
  int64_t last_examined_ = 0;  // by batches_
  std::vector<std::string> last_faults_;
  std::map<std::string, CauseGauge> causes_;
  std::string last_why_;
  std::string last_audit_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_DOCTOR_SERIES_H_
