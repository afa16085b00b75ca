// The Prometheus series of one run's optimizer steps.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_STEP_SERIES_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_STEP_SERIES_H_

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/receipt.h"
#include "server/observe/metrics.h"
#include "server/observe/step_ledger.h"
#include "server/observe/total.h"

namespace counterweight::server {

// Not thread-safe.
class StepSeries {
 public:
  // Reasons that have series of their own; later ones count as "other".
  static constexpr size_t kMaxReasons = 16;

  // `metrics` must outlive this.
  StepSeries(DriftMetrics* metrics, const prometheus::Labels& run);

  // Counts a report, and the steps that it closed.
  void Count(const StepReport& report,
             const std::vector<StepLedger::ClosedStep>& closed);

 private:
  void Count(const StepLedger::ClosedStep& step);
  // The counter of `family` with the further label.
  Total& Of(Family<Counter>& family, const std::string& label,
            const std::string& value);

  DriftMetrics* const metrics_;
  const prometheus::Labels run_;
  Total steps_;
  Total ratio_one_;
  // By family and the value of its further label.
  std::map<std::pair<Family<Counter>*, std::string>, Total> others_;
  size_t num_reasons_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_STEP_SERIES_H_
