#include "server/observe/metrics.h"

#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "kernels/sums.h"
#include "server/base/version.h"
#include "server/observe/drift_table.h"
#include "server/observe/process_usage.h"
#include "server/observe/serving_table.h"

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

Family<Counter>& Counters(Registry* registry, const MetricRow& row) {
  return prometheus::BuildCounter()
      .Name(std::string(row.name))
      .Help(std::string(row.help))
      .Register(*registry);
}

Family<Gauge>& Gauges(Registry* registry, const MetricRow& row) {
  return prometheus::BuildGauge()
      .Name(std::string(row.name))
      .Help(std::string(row.help))
      .Register(*registry);
}

Family<Histogram>& Histograms(Registry* registry, const MetricRow& row) {
  return prometheus::BuildHistogram()
      .Name(std::string(row.name))
      .Help(std::string(row.help))
      .Register(*registry);
}

consteval const MetricRow& Serving(std::string_view name) {
  return FindRow(kServingTable, name);
}

consteval const MetricRow& Corrected(std::string_view name) {
  return FindRow(kCorrectedTable, name);
}

consteval const MetricRow& OfDoctor(std::string_view name) {
  return FindRow(kDoctorTable, name);
}

consteval const MetricRow& OfStep(std::string_view name) {
  return FindRow(kStepTable, name);
}

consteval const MetricRow& OfRun(std::string_view name) {
  return FindRow(kRunTable, name);
}

// The index; empty if it is unknown.
prometheus::Labels DeviceLabel(int index) {
  return {{"device", index < 0 ? "" : std::to_string(index)}};
}

prometheus::MetricFamily OneSample(const MetricRow& row, double value) {
  prometheus::ClientMetric metric;
  if (row.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return {std::string(row.name),
          std::string(row.help),
          row.type,
          {std::move(metric)}};
}

class ProcessMetrics final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    const ProcessUsage usage = ReadProcessUsage();
    std::vector<prometheus::MetricFamily> families;
    for (const ProcessMetric& each : kProcessTable) {
      families.push_back(OneSample(each.row, usage.*each.field));
    }
    return families;
  }
};

class SampledMetrics final : public prometheus::Collectable {
 public:
  explicit SampledMetrics(std::vector<Sampled> samples)
      : samples_(std::move(samples)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> families;
    families.reserve(samples_.size());
    for (const Sampled& each : samples_) {
      families.push_back(OneSample(each.row, each.read()));
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

const std::vector<double>& StalenessBuckets() {
  static const std::vector<double> buckets(std::begin(kernels::kStalenessEdges),
                                           std::end(kernels::kStalenessEdges));
  return buckets;
}

ServingMetrics::ServingMetrics(Registry* registry)
    : requests(Counters(registry, Serving("counterweight_requests_total"))),
      request_seconds(
          Histograms(registry, Serving("counterweight_request_seconds"))
              .Add({}, SecondsBuckets())),
      stage_seconds(
          Histograms(registry, Serving("counterweight_request_stage_seconds"))),
      decode_seconds(
          stage_seconds.Add({{"stage", "decode"}}, SecondsBuckets())),
      queue_seconds(stage_seconds.Add({{"stage", "queue"}}, SecondsBuckets())),
      receive_seconds(
          stage_seconds.Add({{"stage", "receive"}}, SecondsBuckets())),
      compute_seconds(
          stage_seconds.Add({{"stage", "compute"}}, SecondsBuckets())),
      encode_seconds(
          stage_seconds.Add({{"stage", "encode"}}, SecondsBuckets())),
      request_bytes(
          Counters(registry, Serving("counterweight_request_bytes_total"))
              .Add({})),
      response_bytes(
          Counters(registry, Serving("counterweight_response_bytes_total"))
              .Add({})),
      tokens(Counters(registry, Serving("counterweight_tokens_total")).Add({})),
      sequences(
          Counters(registry, Serving("counterweight_sequences_total")).Add({})),
      non_finite_rejections(
          Counters(registry,
                   Serving("counterweight_non_finite_rejections_total"))
              .Add({})),
      device_seconds(
          Counters(registry, Serving("counterweight_device_seconds_total"))),
      device_errors(
          Counters(registry, Serving("counterweight_device_errors_total"))),
      device_lost(Gauges(registry, Serving("counterweight_device_lost"))),
      requests_in_flight(
          Gauges(registry, Serving("counterweight_requests_in_flight"))
              .Add({})),
      bytes_in_flight(
          Gauges(registry, Serving("counterweight_bytes_in_flight")).Add({})),
      ready(Gauges(registry, Serving("counterweight_ready")).Add({})),
      build_info(Gauges(registry, Serving("counterweight_build_info"))) {}

void ServingMetrics::CountRequest(std::string_view method,
                                  std::string_view code) {
  requests.Add({{"method", std::string(method)}, {"code", std::string(code)}})
      .Increment();
}

void ServingMetrics::SetBackend(const kernels::BackendInfo& backend) {
  for (const kernels::DeviceInfo& device : backend.devices) {
    device_seconds.Add(DeviceLabel(device.index));
    device_errors.Add(DeviceLabel(device.index));
    device_lost.Add(DeviceLabel(device.index));
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
  const bool is_lost = result.status == kernels::CorrectStatus::kDeviceLost;
  if (is_lost) device_lost.Add(label).Set(1);
  if (is_lost || result.status == kernels::CorrectStatus::kDeviceError) {
    device_errors.Add(label).Increment();
  }
}

DriftMetrics::DriftMetrics(Registry* registry)
    : token_log_ratio(Histograms(
          registry, Corrected("counterweight_corrected_token_log_ratio_nats"))),
      sequence_log_ratio(Histograms(
          registry,
          Corrected("counterweight_corrected_sequence_log_ratio_nats"))),
      runs(Gauges(registry, Corrected("counterweight_drift_runs")).Add({})),
      run_dropped_tokens(Counters(
          registry, OfRun("counterweight_drift_dropped_tokens_total"))),
      run_dropped_sequences(Counters(
          registry, OfRun("counterweight_drift_dropped_sequences_total"))),
      run_token_log_ratio(Histograms(
          registry, OfRun("counterweight_drift_token_log_ratio_nats"))),
      run_sequence_log_ratio(Histograms(
          registry, OfRun("counterweight_drift_sequence_log_ratio_nats"))),
      run_staleness(Histograms(
          registry, OfRun("counterweight_drift_staleness_versions"))),
      run_staleness_tokens(Counters(
          registry, OfRun("counterweight_drift_staleness_tokens_total"))),
      run_staleness_k3_sum(Counters(
          registry, OfRun("counterweight_drift_staleness_k3_sum_nats_total"))),
      run_staleness_kl(
          Gauges(registry, OfRun("counterweight_drift_staleness_kl_nats"))),
      run_staleness_k3(
          Gauges(registry, OfRun("counterweight_drift_staleness_k3_nats"))),
      run_cause_k3(
          Gauges(registry, OfDoctor("counterweight_doctor_cause_k3_nats"))),
      run_audited_k3(
          Gauges(registry, OfDoctor("counterweight_doctor_audited_k3_nats"))),
      run_audited_rows(Counters(
          registry, OfDoctor("counterweight_doctor_audited_rows_total"))),
      run_examined_batches(
          Counters(registry, OfDoctor("counterweight_doctor_batches_total"))),
      run_findings(
          Counters(registry, OfDoctor("counterweight_doctor_findings_total"))),
      run_other_method(Counters(registry, kDeclaredTable[0])),
      run_steps(Counters(registry, OfStep("counterweight_step_steps_total"))),
      run_ratio_one_steps(
          Counters(registry, OfStep("counterweight_step_ratio_one_total"))),
      run_step_tokens(
          Counters(registry, OfStep("counterweight_step_tokens_total"))),
      run_step_changed_tokens(Counters(
          registry, OfStep("counterweight_step_changed_tokens_total"))),
      run_step_receipts(
          Counters(registry, OfStep("counterweight_step_receipts_total"))),
      run_step_skipped_batches(Counters(
          registry, OfStep("counterweight_step_skipped_batches_total"))) {
  for (const BatchCounter& each : kCorrectedCounters) {
    totals.push_back(&Counters(registry, each.row));
  }
  for (const BatchCounter& each : kRunCounters) {
    run_counters.push_back(&Counters(registry, each.row));
  }
  for (const RunSum& each : kRunSums) {
    run_sums.push_back(&Counters(registry, each.row));
  }
  for (const DriftGauge& each : kDriftGauges) {
    run_gauges.push_back(&Gauges(registry, each.row));
  }
  for (const RecentSum& each : kRecentSums) {
    run_recent_sums.push_back(&Gauges(registry, each.row));
  }
}

std::shared_ptr<prometheus::Collectable> MakeProcessMetrics() {
  return std::make_shared<ProcessMetrics>();
}

}  // namespace counterweight::server
