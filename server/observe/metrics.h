// The server's Prometheus metrics: those of *_table.h, which have every name
// and help text.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_METRICS_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_METRICS_H_

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/corrector.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/observe/metric_row.h"

namespace counterweight::server {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
template <typename T>
using Family = prometheus::Family<T>;

// Metrics of serving. All members may be used by several threads.
struct ServingMetrics {
  explicit ServingMetrics(prometheus::Registry* registry);

  // `method` is the RPC's name, `code` a gRPC code's.
  void CountRequest(std::string_view method, std::string_view code);
  // The build's info, and the devices' series at 0.
  void SetBackend(const kernels::BackendInfo& backend);
  // Counts a batch's device time, and a failure of the device.
  void CountDevice(const kernels::CorrectResult& result);

  Family<Counter>& requests;
  Histogram& request_seconds;
  Family<Histogram>& stage_seconds;
  Histogram& decode_seconds;
  Histogram& queue_seconds;
  Histogram& receive_seconds;
  Histogram& compute_seconds;
  Histogram& encode_seconds;
  Counter& request_bytes;
  Counter& response_bytes;
  Counter& tokens;
  Counter& sequences;
  Counter& non_finite_rejections;
  Family<Counter>& device_seconds;
  Family<Counter>& device_errors;
  Family<Gauge>& device_lost;
  Gauge& requests_in_flight;
  Gauge& bytes_in_flight;
  Gauge& ready;
  Family<Gauge>& build_info;
};

// Metrics of the corrected batches; see drift_series.h.
struct DriftMetrics {
  explicit DriftMetrics(prometheus::Registry* registry);

  // Over all runs.
  std::vector<Family<Counter>*> totals;  // parallel to kCorrectedCounters
  Family<Histogram>& token_log_ratio;
  Family<Histogram>& sequence_log_ratio;
  Gauge& runs;

  // Counters by run; those of dropped tokens also by rule.
  std::vector<Family<Counter>*> run_counters;   // parallel to kRunCounters
  std::vector<Family<Counter>*> run_sums;       // parallel to kRunSums
  std::vector<Family<Gauge>*> run_gauges;       // parallel to kDriftGauges
  std::vector<Family<Gauge>*> run_recent_sums;  // parallel to kRecentSums
  Family<Counter>& run_dropped_tokens;
  Family<Counter>& run_dropped_sequences;
  Family<Histogram>& run_token_log_ratio;
  Family<Histogram>& run_sequence_log_ratio;
  Family<Histogram>& run_staleness;
  // By run and staleness.
  Family<Counter>& run_staleness_tokens;
  Family<Counter>& run_staleness_k3_sum;
  Family<Gauge>& run_staleness_kl;
  Family<Gauge>& run_staleness_k3;
  // Examined batches: kDoctorTable.
  Family<Gauge>& run_cause_k3;    // by cause
  Family<Gauge>& run_audited_k3;  // by bound
  Family<Counter>& run_audited_rows;
  Family<Counter>& run_examined_batches;
  Family<Counter>& run_findings;      // by finding and severity
  Family<Counter>& run_other_method;  // kDeclaredTable
  // Reported steps: kStepTable.
  Family<Counter>& run_steps;
  Family<Counter>& run_ratio_one_steps;
  Family<Counter>& run_step_tokens;           // by entry
  Family<Counter>& run_step_changed_tokens;   // by entry
  Family<Counter>& run_step_receipts;         // by state
  Family<Counter>& run_step_skipped_batches;  // by reason
};

// Bucket borders of log ratios: kernels::kHistogramEdges.
const std::vector<double>& LogRatioBuckets();

// Bucket borders of staleness: kernels::kStalenessEdges.
const std::vector<double>& StalenessBuckets();

// A metric that is read at each scrape.
struct Sampled {
  MetricRow row;
  std::function<double()> read;
};
std::shared_ptr<prometheus::Collectable> MakeSampledMetrics(
    std::vector<Sampled> samples);

// The process' memory, CPU time, open files and start time, read at each
// scrape.
std::shared_ptr<prometheus::Collectable> MakeProcessMetrics();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_METRICS_H_
