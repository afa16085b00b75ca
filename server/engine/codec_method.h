// Decodes a request's method: a preset, a config or a dialect's block. Part of
// the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_METHOD_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_METHOD_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "counterweight/v1/method.pb.h"
#include "kernels/spec.h"
#include "kernels/sums.h"
#include "server/engine/counts_use.h"
#include "server/engine/dialect.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Rows by group; see kernels::Batch::groups.
struct Groups {
  std::vector<int32_t> of_rows;  // empty: there are none
  int64_t count = 0;
};

struct Method {
  // "token_tis", "config", "verl": for the log line.
  std::string name;
  kernels::CorrectionSpec spec;
  // Parallel to spec.rules.
  std::vector<std::string> rule_names;
  std::vector<std::string> warnings;
  // Computes the answer's metrics; may find violations. Empty: the kernels' own
  // metrics. See Translation::report.
  std::function<void(const kernels::BatchSums&, MetricMap*, Violations*)>
      report;
  // See Translation::token_metrics.
  TokenMetrics token_metrics;
  TokenMetricMemory token_metric_memory;
  // See Translation.
  bool last_rule_spares_weights = false;
  // See Translation::row_filter.
  std::optional<RowFilter> row_filter;
  // See Translation::derived.
  DerivedTensors derived;
  // The method needs its sums even without metrics, to decide whether it can
  // answer.
  bool report_judges = false;
  // The answer's loss is NaN if there is nothing to average.
  bool empty_loss_is_nan = false;
  // Groups are those of CorrectRequest.group_ids.
  bool uses_group_ids = false;
  // Otherwise these groups, if any.
  Groups groups;
  // The block's divisors of rows, if any.
  std::vector<double> row_divisors;
  CountsUse counts_use;
};

// Without violations the spec fulfills the REQUIRES of Corrector::Correct:
// presets, configs and dialects all pass kernels::Validate here.
Result<Method> ReadMethod(const v1::Method& method, const RequestFacts& facts,
                          std::span<const Dialect> dialects = Dialects());

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_METHOD_H_
