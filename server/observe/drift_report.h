// The data of a corrected batch that the drift metrics use.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_REPORT_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_REPORT_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/engine/calm_level.h"
#include "server/engine/publication.h"
#include "server/observe/recent_ids.h"

namespace counterweight::server {

struct DriftReport {
  // The sender, e.g. an IP address; bounds are per client.
  std::string_view client;
  // Label; empty: unlabelled, published with an empty label run.
  std::string_view run;
  // Label; empty: of no replica.
  std::string_view replica = {};
  // Label: of the trained policy, >= 0.
  std::optional<int64_t> policy_version;
  // The caller's id; if empty, the batch is always published.
  std::string_view request_id;
  // Who computed the batch: this server, or the client of a publication.
  RecentIds::Source source = RecentIds::Source::kServer;
  const PublishedBatch* batch = nullptr;
  // The batch as a part of a step; null: it is none.
  const StepPart* part = nullptr;
  // Its weights, for the run's calm level; null: not counted.
  const CalmBatch* calm = nullptr;
};

// The subject of gauges and page: a batch, or the step that it is a part of.
struct ShownBatch {
  std::optional<int64_t> policy_version;
  // For a step, its number and how many parts it has.
  std::optional<int64_t> step;
  int64_t parts = 1;
  const PublishedBatch* batch = nullptr;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_REPORT_H_
