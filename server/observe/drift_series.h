// Drift of the corrected batches as Prometheus series, by run.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_SERIES_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_SERIES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/registry.h"
#include "server/engine/codec_declaration.h"
#include "server/engine/published_sums.h"
#include "server/observe/calm_history.h"
#include "server/observe/doctor_series.h"
#include "server/observe/drift_report.h"
#include "server/observe/metrics.h"
#include "server/observe/recent_ids.h"
#include "server/observe/recent_steps.h"
#include "server/observe/run_replicas.h"
#include "server/observe/run_ring.h"
#include "server/observe/run_series.h"
#include "server/observe/run_steps.h"
#include "server/observe/step_ledger.h"
#include "server/observe/step_series.h"
#include "server/observe/total.h"

namespace counterweight::server {

// Bounds the number of runs, so that no client can overload Prometheus.
// Thread-safe.
class DriftSeries {
 public:
  struct Limits {
    int64_t max_runs;
    int64_t max_runs_per_client;
    // Batches of each run that LastBatches keeps.
    int64_t last_batches = 0;
    // Time after which HideOldGauges hides a gauge.
    std::chrono::duration<double> gauge_window = std::chrono::hours(1);
  };
  using Clock = std::chrono::steady_clock;

  struct LastBatch {
    std::string run;
    double seconds_ago;
    // StepLedger::LastState.
    std::string last_step;
    // DoctorSeries::LastFaults and LastWhy.
    std::vector<std::string> faults;
    std::string why;
    // DoctorSeries::LastAudit.
    std::string audit;
    // SentenceOf the run's replicas.
    std::string replicas;
    // The run's last batch had another method than the run declares.
    bool is_of_other_method = false;
  };

  // `registry` must outlive this. `now` is for tests.
  DriftSeries(const Limits& limits, prometheus::Registry* registry,
              std::function<Clock::time_point()> now = Clock::now);

  // Publishes one successful batch, unless its client and run published the
  // same request_id recently: of kMaxRecentIds those are forgotten first that
  // are the oldest of the client and run with most, and a batch of this server
  // counts even if a publication had its id before. Gauges show the run's
  // last batch that had tokens or, where batches name their step, the newest
  // step; counters and histograms add up. A run belongs
  // to the client that brought it; a run too many removes the series of the
  // idlest one, of this client or of all. The unlabelled run is never removed
  // and counts for no client.
  void Publish(const DriftReport& report);

  // True if the run's next batch is to be examined for faults.
  bool WantsExamination(std::string_view run) const;
  // Counts and shows what an examination found in a batch of `client`.
  void CountExamined(std::string_view run, std::string_view client,
                     const Examined& examined);

  // Counts the audited rows of a batch of `client`, unless its request_id was
  // counted recently; `sums` are its AuditSummary's.
  void CountAudited(std::string_view run, std::string_view client,
                    std::string_view request_id, std::span<const double> sums);

  // Counts a trainer's report of a step, from `client`, unless its request_id
  // was reported recently. Returns the state of the step if all its reports
  // have been received.
  v1::ReceiptState Report(const StepReport& report, std::string_view client);

  // Keeps the method that the run declares, for `client`, as long as the run's
  // series; returns the one that it replaces.
  DeclaredMethodPtr Declare(const Declaration& declaration,
                            std::string_view client);
  // The method that the run declares; null: none.
  DeclaredMethodPtr Declared(std::string_view run) const;
  // Notes whether a batch of `client` had another method than its run, `name`,
  // declares, and counts that, unless its request_id was noted recently.
  // Without effect on a run that has none any more.
  void NoteMethod(std::string_view name, std::string_view client,
                  std::string_view request_id, bool is_other);

  // The level of the run's calm steps for a batch of `step`, which may become
  // one of those that make it; nullopt: the run has CalmHistories::kMost
  // others. The run has them as long as its series.
  std::optional<CalmLevel> CalmLevelOf(std::string_view run,
                                       std::string_view client,
                                       const CalmWeights& weights,
                                       int64_t step);

  // Removes the gauges that no batch has set for gauge_window: a run that has
  // left this server, or no longer has what the gauge shows. They return with
  // the next such batch; counters and histograms stay.
  void HideOldGauges();

  // The runs that have series, by name.
  std::vector<LastBatch> Runs() const;

  // The drift of its replicas in their newest batches; none if there is no such
  // run, or one replica alone.
  std::vector<ReplicaDrift> Replicas(std::string_view run) const;

  // Oldest first; none if there is no such run.
  std::vector<RunPoint> LastBatches(std::string_view run) const;

  static constexpr size_t kMaxRecentIds = 65536;

 private:
  struct Run {
    Run(DriftMetrics* metrics, const std::string& name, std::string_view owner,
        int64_t last_batches)
        : client(owner),
          series(metrics, name),
          ring(static_cast<size_t>(last_batches)),
          recent(metrics, {{"run", name}}),
          doctor(metrics, {{"run", name}}),
          step_series(metrics, {{"run", name}}),
          other_method(metrics->run_other_method, {{"run", name}},
                       Addends::kCounts) {}

    const std::string client;
    uint64_t last_published = 0;  // by the clock num_published_
    RunSeries series;
    RunRing ring;
    RunSteps steps;
    RecentSteps recent;
    RunReplicas replicas;
    DoctorSeries doctor;
    StepLedger ledger;
    StepSeries step_series;
    CalmHistories calm;
    DeclaredMethodPtr declared;
    Total other_method;
    bool is_of_other_method = false;
    Clock::time_point last_batch;  // or report, or declaration
  };

  // The members below need the mutex.
  Run& FindOrAdd(std::string_view name, std::string_view client);
  // Removes the labelled run that was published longest ago; only one of
  // `client` unless that is empty.
  void RemoveIdlest(std::string_view client);
  int64_t CountRuns(std::string_view client) const;
  void PublishTotals(const PublishedSums& sums);
  void Show(const DriftReport& report, Run* run);

  const Limits limits_;
  const std::function<Clock::time_point()> now_;
  DriftMetrics metrics_;
  mutable std::mutex mutex_;  // guards all below
  std::deque<Total> totals_;  // parallel to kCorrectedCounters
  TotalHistogram token_log_ratio_, sequence_log_ratio_;
  RecentIds recent_ids_;
  uint64_t num_published_ = 0;
  std::map<std::string, Run, std::less<>> runs_;
};

// A source of metrics without any, which hides old gauges whenever it is read:
// to be read before the registry.
std::shared_ptr<prometheus::Collectable> HideOldGaugesOf(DriftSeries* drift);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_SERIES_H_
