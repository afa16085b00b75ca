#include "server/observe/metrics.h"

#include <cmath>
#include <string>
#include <utility>

#include "kernels/sums.h"
#include "server/observe/process_usage.h"
#include "server/observe/version.h"

namespace counterweight::server {
namespace {

using prometheus::Registry;

// 100 us, the smallest batch, to 100 s, the largest on one core.
const std::vector<double>& SecondsBuckets() {
  static const std::vector<double> buckets = {1e-4, 3e-4, 1e-3, 3e-3, 0.01,
                                              0.03, 0.1,  0.3,  1.0,  3.0,
                                              10.0, 30.0, 100.0};
  return buckets;
}

Family<Counter>& Counters(Registry* registry, const char* name,
                          const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
}

Family<Gauge>& Gauges(Registry* registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(*registry);
}

Family<Histogram>& Histograms(Registry* registry, const char* name,
                              const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
}

Counter& OneCounter(Registry* registry, const char* name, const char* help) {
  return Counters(registry, name, help).Add({});
}

Gauge& OneGauge(Registry* registry, const char* name, const char* help) {
  return Gauges(registry, name, help).Add({});
}

// The index; empty if nobody told it.
prometheus::Labels DeviceLabel(int index) {
  return {{"device", index < 0 ? "" : std::to_string(index)}};
}

prometheus::MetricFamily OneSample(const char* name, const char* help,
                                   prometheus::MetricType type, double value) {
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {name, help, type, {std::move(metric)}};
}

// Prometheus' own client libraries define these names.
class ProcessMetrics final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    using enum prometheus::MetricType;
    const ProcessUsage usage = ReadProcessUsage();
    return {
        OneSample("process_resident_memory_bytes", "Resident memory.", Gauge,
                  usage.resident_bytes),
        OneSample("process_virtual_memory_bytes", "Virtual memory.", Gauge,
                  usage.virtual_bytes),
        OneSample("process_cpu_seconds_total", "User and system CPU time.",
                  Counter, usage.cpu_seconds),
        OneSample("process_open_fds", "Open file descriptors.", Gauge,
                  usage.open_files),
        OneSample("process_max_fds", "Most open file descriptors allowed.",
                  Gauge, usage.max_open_files),
        OneSample("process_start_time_seconds",
                  "Start time, in seconds since the Unix epoch.", Gauge,
                  usage.start_time_seconds),
    };
  }
};

class SampledMetrics final : public prometheus::Collectable {
 public:
  explicit SampledMetrics(std::vector<Sampled> samples)
      : samples_(std::move(samples)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    for (const Sampled& each : samples_) {
      families.push_back(
          OneSample(each.name, each.help, each.type, each.read()));
    }
    return families;
  }

 private:
  const std::vector<Sampled> samples_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeSampledMetrics(
    std::vector<Sampled> samples) {
  return std::make_shared<SampledMetrics>(std::move(samples));
}

const std::vector<double>& LogRatioBuckets() {
  static const std::vector<double> buckets = [] {
    std::vector<double> edges;
    for (const float edge : kernels::kHistogramEdges) {
      // As a person writes it: the float 0.3 would be labelled 0.300000012.
      edges.push_back(std::round(static_cast<double>(edge) * 1e4) / 1e4);
    }
    return edges;
  }();
  return buckets;
}

ServingMetrics::ServingMetrics(Registry* registry)
    : requests(Counters(registry, "counterweight_requests_total",
                        "Requests answered, by method and gRPC code.")),
      request_seconds(
          Histograms(registry, "counterweight_request_seconds",
                     "Time of a batch, from its message or header received to "
                     "its answer handed to the transport.")
              .Add({}, SecondsBuckets())),
      stage_seconds(Histograms(registry, "counterweight_request_stage_seconds",
                               "Time of a batch in each stage.")),
      decode_seconds(
          stage_seconds.Add({{"stage", "decode"}}, SecondsBuckets())),
      queue_seconds(stage_seconds.Add({{"stage", "queue"}}, SecondsBuckets())),
      receive_seconds(
          stage_seconds.Add({{"stage", "receive"}}, SecondsBuckets())),
      compute_seconds(
          stage_seconds.Add({{"stage", "compute"}}, SecondsBuckets())),
      encode_seconds(
          stage_seconds.Add({{"stage", "encode"}}, SecondsBuckets())),
      request_bytes(OneCounter(registry, "counterweight_request_bytes_total",
                               "Bytes of Correct requests, as received.")),
      response_bytes(OneCounter(registry, "counterweight_response_bytes_total",
                                "Bytes of successful Correct responses.")),
      tokens(OneCounter(registry, "counterweight_tokens_total",
                        "Tokens that count, of successful requests; a retry "
                        "counts again.")),
      sequences(OneCounter(registry, "counterweight_sequences_total",
                           "Sequences of successful requests; a retry counts "
                           "again.")),
      non_finite_rejections(OneCounter(
          registry, "counterweight_non_finite_rejections_total",
          "Requests refused because a number in them is not finite.")),
      device_seconds(
          Counters(registry, "counterweight_device_seconds_total",
                   "Seconds that devices computed, transfers not counted.")),
      device_errors(Counters(registry, "counterweight_device_errors_total",
                             "Batches that failed because a device did.")),
      requests_in_flight(OneGauge(registry, "counterweight_requests_in_flight",
                                  "Correct requests admitted, not answered.")),
      bytes_in_flight(OneGauge(registry, "counterweight_bytes_in_flight",
                               "Bytes of the Correct requests in flight.")),
      ready(OneGauge(registry, "counterweight_ready",
                     "1 while health answers SERVING, else 0.")),
      build_info(Gauges(registry, "counterweight_build_info",
                        "Always 1; the labels say what runs.")) {}

void ServingMetrics::CountRequest(std::string_view method,
                                  std::string_view code) {
  requests.Add({{"method", std::string(method)}, {"code", std::string(code)}})
      .Increment();
}

void ServingMetrics::SetBackend(const kernels::BackendInfo& backend) {
  for (const kernels::DeviceInfo& device : backend.devices) {
    device_seconds.Add(DeviceLabel(device.index));
    device_errors.Add(DeviceLabel(device.index));
  }
  build_info
      .Add({{"version", Version()},
            {"revision", Revision()},
            {"backend", backend.name},
            {"instruction_set", backend.instruction_set}})
      .Set(1);
}

void ServingMetrics::CountDevice(const kernels::CorrectResult& result) {
  const prometheus::Labels label = DeviceLabel(result.device);
  if (result.device_seconds > 0) {
    device_seconds.Add(label).Increment(result.device_seconds);
  }
  if (result.status == kernels::CorrectStatus::kDeviceError) {
    device_errors.Add(label).Increment();
  }
}

// "corrected" families are over all runs, "drift" ones have the label run: one
// family with both would make every sum over it count twice.
DriftMetrics::DriftMetrics(Registry* registry)
    : batches(OneCounter(registry, "counterweight_corrected_batches_total",
                         "Batches corrected, each request_id once.")),
      tokens(OneCounter(registry, "counterweight_corrected_tokens_total",
                        "Tokens that count, each request_id once.")),
      sequences(OneCounter(registry, "counterweight_corrected_sequences_total",
                           "Sequences, each request_id once.")),
      kept_tokens(OneCounter(registry,
                             "counterweight_corrected_kept_tokens_total",
                             "Tokens in the keep mask.")),
      kept_sequences(OneCounter(registry,
                                "counterweight_corrected_kept_sequences_total",
                                "Sequences with a token in the keep mask.")),
      non_finite_tokens(OneCounter(
          registry, "counterweight_corrected_non_finite_tokens_total",
          "Tokens dropped or neutralized because they were not finite.")),
      token_log_ratio(Histograms(registry,
                                 "counterweight_corrected_token_log_ratio_nats",
                                 "Log ratio of each token.")
                          .Add({}, LogRatioBuckets())),
      sequence_log_ratio(
          Histograms(registry,
                     "counterweight_corrected_sequence_log_ratio_nats",
                     "Mean log ratio of each sequence.")
              .Add({}, LogRatioBuckets())),
      runs(OneGauge(registry, "counterweight_drift_runs",
                    "Values of the label run that have series now.")),
      kl(Gauges(registry, "counterweight_drift_kl_nats",
                "KL divergence of the sampling policy from the other one, mean "
                "of -l over the last batch's tokens; l is the log ratio.")),
      k3(Gauges(registry, "counterweight_drift_k3_nats",
                "The same by the estimator exp(l) - 1 - l, which is never "
                "negative.")),
      chi2_token(Gauges(registry, "counterweight_drift_chi2_token",
                        "Mean of exp(2 l) - 1 over the last batch's tokens.")),
      chi2_sequence(Gauges(registry, "counterweight_drift_chi2_sequence",
                           "Mean of exp(2 sum l) - 1 over the last batch's "
                           "sequences.")),
      ppl_ratio(Gauges(registry, "counterweight_drift_ppl_ratio",
                       "Mean over the last batch's sequences of the ratio of "
                       "perplexities, exp(-mean l).")),
      kept_token_ratio(Gauges(registry, "counterweight_drift_kept_token_ratio",
                              "Share of the last batch's tokens kept.")),
      effective_sample_size(Gauges(
          registry, "counterweight_drift_effective_sample_size_ratio",
          "(mean w)^2 / mean(w^2) of the last batch's importance weights.")),
      weight_mean(Gauges(registry, "counterweight_drift_weight_mean",
                         "Mean importance weight of the last batch.")),
      weight_max(Gauges(registry, "counterweight_drift_weight_max",
                        "Largest importance weight of the last batch.")),
      clipped_high(Gauges(registry, "counterweight_drift_weight_high_ratio",
                          "Share of the last batch's tokens whose weight was "
                          "above the upper bound.")),
      clipped_low(Gauges(registry, "counterweight_drift_weight_low_ratio",
                         "Share of the last batch's tokens whose weight was "
                         "below the lower bound, or below 1 / upper bound if "
                         "there is no lower one.")),
      outside(Gauges(registry, "counterweight_drift_weight_outside_ratio",
                     "Share of the last batch's tokens whose weight the bound "
                     "truncated or masked.")),
      run_batches(Counters(registry, "counterweight_drift_batches_total",
                           "Batches corrected, each request_id once.")),
      run_tokens(Counters(registry, "counterweight_drift_tokens_total",
                          "Tokens that count, each request_id once.")),
      run_sequences(Counters(registry, "counterweight_drift_sequences_total",
                             "Sequences, each request_id once.")),
      run_non_finite_tokens(Counters(
          registry, "counterweight_drift_non_finite_tokens_total",
          "Tokens dropped or neutralized because they were not finite.")),
      run_dropped_tokens(
          Counters(registry, "counterweight_drift_dropped_tokens_total",
                   "Tokens that a rule dropped or whose weight it zeroed.")),
      run_dropped_sequences(
          Counters(registry, "counterweight_drift_dropped_sequences_total",
                   "Sequences with a token that a rule dropped or zeroed.")),
      run_token_log_ratio(Histograms(registry,
                                     "counterweight_drift_token_log_ratio_nats",
                                     "Log ratio of each token.")),
      run_sequence_log_ratio(
          Histograms(registry, "counterweight_drift_sequence_log_ratio_nats",
                     "Mean log ratio of each sequence.")) {}

std::shared_ptr<prometheus::Collectable> MakeProcessMetrics() {
  return std::make_shared<ProcessMetrics>();
}

}  // namespace counterweight::server
