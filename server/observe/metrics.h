// Every Prometheus metric of the server: names, labels, units and buckets are
// in metrics.cc and nowhere else.
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
#include "prometheus/metric_type.h"
#include "prometheus/registry.h"

namespace counterweight::server {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
template <typename T>
using Family = prometheus::Family<T>;

// How the server serves. All members may be used by several threads.
struct ServingMetrics {
  explicit ServingMetrics(prometheus::Registry* registry);

  // `method` is the RPC's name, `code` a gRPC code's.
  void CountRequest(std::string_view method, std::string_view code);
  // The build's info, and the devices' series at 0.
  void SetBackend(const kernels::BackendInfo& backend);
  // What a batch cost a device, and whether the device failed.
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
  Gauge& requests_in_flight;
  Gauge& bytes_in_flight;
  Gauge& ready;
  Family<Gauge>& build_info;
};

// What the corrected batches look like; see drift_series.h.
struct DriftMetrics {
  explicit DriftMetrics(prometheus::Registry* registry);

  // Over all runs, never reset.
  Counter& batches;
  Counter& tokens;
  Counter& sequences;
  Counter& kept_tokens;
  Counter& kept_sequences;
  Counter& non_finite_tokens;
  Histogram& token_log_ratio;
  Histogram& sequence_log_ratio;
  Gauge& runs;

  // By run: the last batch.
  Family<Gauge>& kl;
  Family<Gauge>& k3;
  Family<Gauge>& chi2_token;
  Family<Gauge>& chi2_sequence;
  Family<Gauge>& ppl_ratio;
  Family<Gauge>& kept_token_ratio;
  Family<Gauge>& effective_sample_size;
  Family<Gauge>& weight_mean;
  Family<Gauge>& weight_max;
  Family<Gauge>& clipped_high;
  Family<Gauge>& clipped_low;
  Family<Gauge>& outside;

  // By run: all its batches. The dropped ones by run and rule.
  Family<Counter>& run_batches;
  Family<Counter>& run_tokens;
  Family<Counter>& run_sequences;
  Family<Counter>& run_non_finite_tokens;
  Family<Counter>& run_dropped_tokens;
  Family<Counter>& run_dropped_sequences;
  Family<Histogram>& run_token_log_ratio;
  Family<Histogram>& run_sequence_log_ratio;
};

// Bucket borders of log ratios: kernels::kHistogramEdges.
const std::vector<double>& LogRatioBuckets();

// A number that is read at each scrape.
struct Sampled {
  const char* name;
  const char* help;
  prometheus::MetricType type;
  std::function<double()> read;
};
std::shared_ptr<prometheus::Collectable> MakeSampledMetrics(
    std::vector<Sampled> samples);

// The process' memory, CPU time, open files and start time, read at each
// scrape.
std::shared_ptr<prometheus::Collectable> MakeProcessMetrics();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_METRICS_H_
