#include "server/observe/drift_series.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "server/observe/drift_table.h"

namespace counterweight::server {
namespace {

int64_t UnixMilliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class OldGauges final : public prometheus::Collectable {
 public:
  explicit OldGauges(DriftSeries* drift) : drift_(*drift) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    drift_.HideOldGauges();
    return {};
  }

 private:
  DriftSeries& drift_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> HideOldGaugesOf(DriftSeries* drift) {
  return std::make_shared<OldGauges>(drift);
}

DriftSeries::DriftSeries(const Limits& limits, prometheus::Registry* registry,
                         std::function<Clock::time_point()> now)
    : limits_(limits),
      now_(std::move(now)),
      metrics_(registry),
      token_log_ratio_(metrics_.token_log_ratio, {}, LogRatioBuckets()),
      sequence_log_ratio_(metrics_.sequence_log_ratio, {}, LogRatioBuckets()),
      recent_ids_(kMaxRecentIds) {
  for (Family<Counter>* const family : metrics_.totals) {
    totals_.emplace_back(*family, prometheus::Labels(), Addends::kCounts);
    totals_.back().Add(0);
  }
  token_log_ratio_.Show();
  sequence_log_ratio_.Show();
}

void DriftSeries::Publish(const DriftReport& report) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!report.request_id.empty() &&
      !recent_ids_.Insert({std::string(report.run), std::string(report.client)},
                          std::string(report.request_id), report.source)) {
    return;
  }
  PublishTotals(report.batch->sums);
  Run& run = FindOrAdd(report.run, report.client);
  run.last_published = ++num_published_;
  run.last_batch = now_();
  run.series.Count(*report.batch);
  run.recent.Add(
      report.part != nullptr ? std::optional(report.part->step) : std::nullopt,
      *report.batch, run.last_batch);
  const PublishedSums& sums = report.batch->sums;
  run.replicas.Add(report.replica, sums.tokens, sums.drift.k3);
  run.doctor.CountBatch(run.last_batch);
  if (report.calm != nullptr) run.calm.Add(*report.calm);
  Show(report, &run);
}

bool DriftSeries::WantsExamination(std::string_view run) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() || found->second.doctor.IsDue();
}

void DriftSeries::CountExamined(std::string_view run, std::string_view client,
                                const Examined& examined) {
  const std::lock_guard<std::mutex> lock(mutex_);
  FindOrAdd(run, client).doctor.Count(examined, now_());
}

void DriftSeries::CountAudited(std::string_view run, std::string_view client,
                               std::string_view request_id,
                               std::span<const double> sums) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!request_id.empty() &&
      !recent_ids_.Insert({std::string(run), std::string(client)},
                          "audit " + std::string(request_id),
                          RecentIds::Source::kPublication)) {
    return;
  }
  Run& of = FindOrAdd(run, client);
  of.last_batch = now_();
  of.doctor.CountAudited(sums, now_());
}

v1::ReceiptState DriftSeries::Report(const StepReport& report,
                                     std::string_view client) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Run& run = FindOrAdd(report.run, client);
  run.last_published = ++num_published_;
  run.last_batch = now_();
  // Reports and batches may have the same ids.
  if (recent_ids_.Insert({report.run, std::string(client)},
                         "report " + report.request_id,
                         RecentIds::Source::kPublication)) {
    run.step_series.Count(report, run.ledger.Add(report));
  }
  return run.ledger.StateOf(report.step);
}

DeclaredMethodPtr DriftSeries::Declare(const Declaration& declaration,
                                       std::string_view client) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Run& run = FindOrAdd(declaration.run, client);
  run.last_published = ++num_published_;
  run.last_batch = now_();
  // Shows it before the first.
  run.other_method.Add(0);
  if (run.declared != nullptr &&
      run.declared->bytes != declaration.method->bytes) {
    run.is_of_other_method = false;
  }
  return std::exchange(run.declared, declaration.method);
}

DeclaredMethodPtr DriftSeries::Declared(std::string_view run) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() ? nullptr : found->second.declared;
}

std::optional<CalmLevel> DriftSeries::CalmLevelOf(std::string_view run,
                                                  std::string_view client,
                                                  const CalmWeights& weights,
                                                  int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Run& of = FindOrAdd(run, client);
  // Else the run would be the next that has to go.
  of.last_published = ++num_published_;
  of.last_batch = now_();
  return of.calm.At(weights, step);
}

void DriftSeries::NoteMethod(std::string_view name, std::string_view client,
                             std::string_view request_id, bool is_other) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = runs_.find(name);
  if (found == runs_.end() || found->second.declared == nullptr) return;
  Run& run = found->second;
  run.is_of_other_method = is_other;
  if (!is_other) return;
  if (request_id.empty() ||
      recent_ids_.Insert({std::string(name), std::string(client)},
                         "method " + std::string(request_id),
                         RecentIds::Source::kPublication)) {
    run.other_method.Add(1);
  }
}

void DriftSeries::Show(const DriftReport& report, Run* run) {
  ShownBatch shown{.policy_version = report.policy_version,
                   .batch = report.batch};
  StepBatch step;
  if (report.part != nullptr) {
    if (!run->steps.Add(*report.part, *report.batch, &step)) return;
    shown.step = step.step;
    shown.parts = step.parts;
    shown.batch = &step.batch;
  }
  // Without tokens there is no drift, and the gauges keep their values.
  const std::optional<RunDrift> drift = Measure(shown);
  if (!drift) return;
  if (step.is_newest) run->series.Show(shown, *drift, run->last_batch);
  run->ring.Add(shown, *drift, UnixMilliseconds());
}

void DriftSeries::HideOldGauges() {
  const auto window =
      std::chrono::duration_cast<Clock::duration>(limits_.gauge_window);
  const std::lock_guard<std::mutex> lock(mutex_);
  const Clock::time_point oldest = now_() - window;
  for (auto& [name, run] : runs_) {
    run.series.HideGaugesBefore(oldest);
    run.recent.HideGaugesBefore(oldest);
    run.doctor.HideGaugesBefore(oldest);
  }
}

std::vector<DriftSeries::LastBatch> DriftSeries::Runs() const {
  const Clock::time_point now = now_();
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<LastBatch> runs;
  for (const auto& [name, run] : runs_) {
    const std::chrono::duration<double> age = now - run.last_batch;
    runs.push_back({name, std::max(age.count(), 0.0), run.ledger.LastState(),
                    run.doctor.LastFaults(), run.doctor.LastWhy(),
                    run.doctor.LastAudit(), SentenceOf(run.replicas.Drifts()),
                    run.is_of_other_method});
  }
  return runs;
}

std::vector<ReplicaDrift> DriftSeries::Replicas(std::string_view run) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return {};
  return found->second.replicas.Drifts();
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
  if (idlest == runs_.end()) return;
  // Else invented runs would take the places of others' ids.
  recent_ids_.Forget(idlest->first);
  runs_.erase(idlest);
}

int64_t DriftSeries::CountRuns(std::string_view client) const {
  return std::count_if(runs_.begin(), runs_.end(), [&](const auto& run) {
    return !run.first.empty() &&
           (client.empty() || run.second.client == client);
  });
}

void DriftSeries::PublishTotals(const PublishedSums& sums) {
  for (size_t i = 0; i < totals_.size(); ++i) {
    totals_[i].Add(Amount(kCorrectedCounters[i], sums));
  }
  ObserveLogRatios(sums.drift, &token_log_ratio_, &sequence_log_ratio_);
}

}  // namespace counterweight::server
