#include "server/observe/drift_series.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "server/observe/drift_table.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

int64_t UnixMilliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

DriftSeries::DriftSeries(const Limits& limits, prometheus::Registry* registry)
    : limits_(limits), metrics_(registry), recent_ids_(kMaxRecentIds) {}

void DriftSeries::Publish(const DriftReport& report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!report.request_id.empty()) {
    // A newline is in none of the three.
    std::string id =
        fmt::format("{}\n{}\n{}", report.client, report.run, report.request_id);
    if (!recent_ids_.Insert(std::move(id))) return;
  }
  PublishTotals(report.batch->sums);
  Run& run = FindOrAdd(report.run, report.client);
  run.last_published = ++num_published_;
  // Without tokens there is no drift, and the gauges keep their values.
  const std::optional<RunDrift> drift = Measure(report);
  run.series.Publish(report, drift);
  run.last_batch = std::chrono::steady_clock::now();
  if (drift) run.ring.Add(report, *drift, UnixMilliseconds());
}

std::vector<DriftSeries::LastBatch> DriftSeries::Runs() const {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<LastBatch> runs;
  for (const auto& [name, run] : runs_) {
    const std::chrono::duration<double> age = now - run.last_batch;
    runs.push_back({name, std::max(age.count(), 0.0)});
  }
  return runs;
}

std::vector<RunPoint> DriftSeries::LastBatches(std::string_view run) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return {};
  return found->second.ring.Points();
}

DriftSeries::Run& DriftSeries::FindOrAdd(std::string_view name,
                                         std::string_view client) {
  if (const auto found = runs_.find(name); found != runs_.end()) {
    return found->second;
  }
  if (!name.empty()) {
    if (CountRuns(client) >= limits_.max_runs_per_client) RemoveIdlest(client);
    if (CountRuns("") >= limits_.max_runs) RemoveIdlest("");
    metrics_.runs.Set(static_cast<double>(CountRuns("") + 1));
  }
  const std::string key(name);
  return runs_
      .emplace(
          std::piecewise_construct, std::forward_as_tuple(key),
          std::forward_as_tuple(&metrics_, key, client, limits_.last_batches))
      .first->second;
}

void DriftSeries::RemoveIdlest(std::string_view client) {
  auto idlest = runs_.end();
  for (auto run = runs_.begin(); run != runs_.end(); ++run) {
    if (run->first.empty()) continue;
    if (!client.empty() && run->second.client != client) continue;
    if (idlest == runs_.end() ||
        run->second.last_published < idlest->second.last_published) {
      idlest = run;
    }
  }
  if (idlest != runs_.end()) runs_.erase(idlest);
}

int64_t DriftSeries::CountRuns(std::string_view client) const {
  return std::count_if(runs_.begin(), runs_.end(), [&](const auto& run) {
    return !run.first.empty() &&
           (client.empty() || run.second.client == client);
  });
}

void DriftSeries::PublishTotals(const kernels::BatchSums& sums) {
  for (size_t i = 0; i < metrics_.totals.size(); ++i) {
    metrics_.totals[i]->Increment(Amount(kCorrectedCounters[i], sums));
  }
  ObserveLogRatios(sums.drift, &metrics_.token_log_ratio,
                   &metrics_.sequence_log_ratio);
}

}  // namespace counterweight::server
