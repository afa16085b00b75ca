#include "server/engine/codec_sequence_filter.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "server/engine/codec_enums.h"
#include "server/engine/codec_fields.h"

namespace counterweight::server {
namespace {

// The metrics are of sequences with tokens, and 0 if there are none.
void AddFilterMetrics(const RowErrors& errors,
                      std::map<std::string, double>* metrics) {
  double mean = 0.0, largest = 0.0, dropped = 0.0;
  if (!errors.all.empty()) {
    const auto count = static_cast<double>(errors.all.size());
    mean = std::accumulate(errors.all.begin(), errors.all.end(), 0.0) / count;
    largest = *std::max_element(errors.all.begin(), errors.all.end());
    dropped =
        static_cast<double>(errors.all.size() - errors.kept.size()) / count;
  }
  (*metrics)["sequence_filter_mean"] = mean;
  (*metrics)["sequence_filter_max"] = largest;
  (*metrics)["sequence_filter_dropped_fraction"] = dropped;
}

}  // namespace

std::optional<RowFilter> ReadSequenceFilter(const v1::CorrectionConfig& config,
                                            Violations* violations) {
  if (!config.has_sequence_filter()) return std::nullopt;
  const v1::SequenceFilter& message = config.sequence_filter();
  FieldReader fields("method.config.sequence_filter.", violations);
  RowFilter filter;
  filter.source =
      fields.Required(kRatioSources, message.ratio_source(), "ratio_source",
                      kernels::RatioSource::kOldRollout);
  if (!message.has_upper()) {
    fields.Fail("upper", "is required: a mean of exp(|l|), >= 1");
  }
  filter.upper =
      fields.Number(message.has_upper(), message.upper(), 1.0, "upper");
  if (filter.upper < 1.0) {
    fields.Fail("upper", "must be >= 1, the mean of equal log-probs");
  }
  filter.report = AddFilterMetrics;
  return filter;
}

}  // namespace counterweight::server
