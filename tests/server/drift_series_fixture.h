// The series of a registry, and batches for them.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DRIFT_SERIES_FIXTURE_H_
#define COUNTERWEIGHT_TESTS_SERVER_DRIFT_SERIES_FIXTURE_H_

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "server/engine/codec_publication.h"
#include "server/observe/drift_series.h"

namespace counterweight::server {

// One row of two tokens.
inline kernels::BatchSums TwoTokens() {
  kernels::BatchSums sums{};
  sums.num_sequences = 1;
  sums.nonempty_sequences = 1;
  sums.tokens = 2;
  sums.kept_tokens = 1;
  sums.kept_sequences = 1;
  sums.weight.normalizer = 1;
  return sums;
}

class DriftSeriesTest : public testing::Test {
 protected:
  void Publish(const kernels::BatchSums& sums, const std::string& run,
               const std::string& request_id = "",
               const std::string& client = "a", bool has_weight = false) {
    kernels::CorrectionSpec spec;
    if (has_weight) spec.weight.level = kernels::Level::kToken;
    Publish(sums, run, spec, std::nullopt, request_id, client);
  }

  void Publish(const kernels::BatchSums& sums, const std::string& run,
               const kernels::CorrectionSpec& spec,
               std::optional<int64_t> policy_version,
               const std::string& request_id = "",
               const std::string& client = "a") {
    const PublishedBatch batch = Published(spec, rule_names_, sums);
    series_.Publish({.client = client,
                     .run = run,
                     .policy_version = policy_version,
                     .request_id = request_id,
                     .batch = &batch});
  }

  // Returns the family's series with this label, or NaN.
  double Value(const std::string& family, const std::string& run) {
    for (const auto& collected : registry_.Collect()) {
      if (collected.name != family) continue;
      for (const auto& metric : collected.metric) {
        for (const auto& label : metric.label) {
          if (label.name == "run" && label.value == run) {
            return collected.type == prometheus::MetricType::Counter
                       ? metric.counter.value
                       : metric.gauge.value;
          }
        }
      }
    }
    return std::numeric_limits<double>::quiet_NaN();
  }

  bool HasRun(const std::string& run) {
    return !std::isnan(Value("counterweight_drift_batches_total", run));
  }

  // Returns the value of a family without labels.
  prometheus::ClientMetric Total(const std::string& family) {
    for (const auto& collected : registry_.Collect()) {
      if (collected.name == family) return collected.metric.front();
    }
    return {};
  }

  // Returns the number of series without the families over all runs.
  size_t NumRunSeries() {
    size_t count = 0;
    for (const auto& collected : registry_.Collect()) {
      for (const auto& metric : collected.metric) {
        count += metric.label.empty() ? 0 : 1;
      }
    }
    return count;
  }

  // Returns the family's counters by the label that is not the run.
  std::map<std::string, double> Values(const std::string& name) {
    std::map<std::string, double> values;
    for (const auto& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        for (const auto& label : metric.label) {
          if (label.name != "run") values[label.value] = metric.counter.value;
        }
      }
    }
    return values;
  }

  std::map<std::string, double> DroppedTokens() {
    return Values("counterweight_drift_dropped_tokens_total");
  }

  prometheus::Registry registry_;
  std::vector<std::string> rule_names_;
  DriftSeries::Clock::time_point now_;
  DriftSeries series_{{.max_runs = 3,
                       .max_runs_per_client = 2,
                       .gauge_window = std::chrono::minutes(10)},
                      &registry_,
                      [this] { return now_; }};
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DRIFT_SERIES_FIXTURE_H_
