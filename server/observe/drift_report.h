// The data of a corrected batch that the drift metrics use.
#ifndef COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_REPORT_H_
#define COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/spec.h"
#include "kernels/sums.h"

namespace counterweight::server {

struct DriftReport {
  // The sender, e.g. an IP address; bounds are per client.
  std::string_view client;
  // Label; empty: unlabelled, published with an empty label run.
  std::string_view run;
  // Label: of the trained policy, >= 0.
  std::optional<int64_t> policy_version;
  // The caller's id; if empty, the batch is always published.
  std::string_view request_id;
  // The method that was computed; it may have no weight, or no loss.
  const kernels::CorrectionSpec* spec = nullptr;
  // Parallel to sums.rules; as many as the method has rules.
  const std::vector<std::string>* rule_names = nullptr;
  const kernels::BatchSums* sums = nullptr;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_OBSERVE_DRIFT_REPORT_H_
