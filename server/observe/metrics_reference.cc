// Prints server/METRICS.md, the reference of Prometheus' metrics. `make docs`
// runs it.
#include <cstdio>
#include <string>
#include <string_view>

#include "server/observe/drift_table.h"
#include "server/observe/serving_table.h"

namespace counterweight::server {
namespace {

std::string_view TypeName(prometheus::MetricType type) {
  using enum prometheus::MetricType;
  return type == Counter ? "counter" : type == Gauge ? "gauge" : "histogram";
}

const MetricRow& RowOf(const MetricRow& row) { return row; }
template <typename T>
const MetricRow& RowOf(const T& entry) {
  return entry.row;
}

template <typename T>
void PrintRows(const T& table) {
  for (const auto& entry : table) {
    const MetricRow& row = RowOf(entry);
    std::string line = "| `";
    line.append(row.name).append("` | ").append(TypeName(row.type));
    line.append(" | ").append(row.labels);
    line.append(" | ").append(row.help).append(" |\n");
    std::fputs(line.c_str(), stdout);
  }
}

template <typename... Tables>
void PrintSection(const char* title, const Tables&... tables) {
  std::printf(
      "\n%s:\n\n| name | type | labels | meaning |\n|---|---|---|---|\n",
      title);
  (PrintRows(tables), ...);
}

constexpr char kHead[] = R"(# Metrics

Written by `make docs` from `observe/serving_table.h`, `drift_table.h` and `run_sums_table.h`. A counter or histogram begins again only
with the process, or where it is so large that it would lose its next addend (a count beyond 2^53, a sum beyond 2^40), as `rate()` expects it.
l is the log ratio of the method's drift source, in nats (clamped at 20 where it is exponentiated), w the bounded weights before
normalization and before rules zero any. Requests without the label have `run=""`. The gauges are the native metrics of
[kernels](../kernels/README.md) of one server's last batch; [README](README.md#series-of-drift) defines their lifetime. A mean over all
batches and servers of a run is a ratio of two rates, such as
`sum by (run) (rate(counterweight_drift_k3_sum_nats_total[5m])) / sum by (run) (rate(counterweight_drift_tokens_total[5m]))`.
)";

void PrintPage() {
  std::fputs(kHead, stdout);
  PrintSection("Serving", kServingTable, kSampleTable);
  PrintSection("Serving, where `--shared_memory_socket` is set",
               kSharedMemoryTable);
  PrintSection("Serving, where `--tls_certificate` is set", kTlsTable);
  PrintSection("Serving, where `--tokens` or `--tls_certificate` is set",
               kAccessTable);
  PrintSection("Serving, where `OTEL_EXPORTER_OTLP_ENDPOINT` is set",
               kTraceTable);
  PrintSection("The process", kProcessTable);
  PrintSection("Drift over all runs, each request_id once", kCorrectedCounters,
               kCorrectedTable);
  PrintSection("Drift by run, each request_id once", kDriftGauges, kRunCounters,
               kRunSums, kRecentSums, kRunTable);
  PrintSection("Examined batches, by kernels/doctor/FINDINGS.md", kDoctorTable);
  PrintSection("Optimizer steps that trainers report, each report once",
               kStepTable);
  PrintSection("Runs that declare their method, each request_id once",
               kDeclaredTable);
}

}  // namespace
}  // namespace counterweight::server

int main() {
  counterweight::server::PrintPage();
  return std::fflush(stdout) == 0 ? 0 : 1;
}
