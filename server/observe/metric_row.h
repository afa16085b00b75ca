// A row of the tables of metrics, *_table.h: the text of /metrics and
// METRICS.md about a family.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_METRIC_ROW_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_METRIC_ROW_H_

#include <span>
#include <stdexcept>
#include <string_view>

#include "prometheus/metric_type.h"

namespace counterweight::server {

struct MetricRow {
  std::string_view name;
  prometheus::MetricType type;
  std::string_view labels;  // "method, code"; empty: a single series
  // A full phrase: scrapers show it without its neighbours.
  std::string_view help;
};

constexpr MetricRow CounterRow(std::string_view name, std::string_view help,
                               std::string_view labels = "") {
  return {name, prometheus::MetricType::Counter, labels, help};
}

constexpr MetricRow GaugeRow(std::string_view name, std::string_view help,
                             std::string_view labels = "") {
  return {name, prometheus::MetricType::Gauge, labels, help};
}

constexpr MetricRow HistogramRow(std::string_view name, std::string_view help,
                                 std::string_view labels = "") {
  return {name, prometheus::MetricType::Histogram, labels, help};
}

// The row called `name`. A name that the table lacks does not compile.
consteval const MetricRow& FindRow(std::span<const MetricRow> table,
                                   std::string_view name) {
  for (const MetricRow& row : table) {
    if (row.name == name) return row;
  }
  throw std::logic_error("the table has no metric of this name");
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_METRIC_ROW_H_
