#include "server/engine/dialects/request_tensors.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

using kernels::RatioSource;

void RequireTensor(bool present, std::string_view name, std::string_view reason,
                   Violations* violations) {
  if (present) return;
  std::string role(name);
  std::transform(role.begin(), role.end(), role.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  const std::string field = Concat("tensors[", role, "]");
  if (std::any_of(
          violations->begin(), violations->end(),
          [&](const Violation& other) { return other.field == field; })) {
    return;
  }
  violations->push_back({field, Concat(name, " is required: ", reason, ".")});
}

RatioSource DriftSource(const RequestFacts& facts) {
  if (facts.has_rollout_log_probs) {
    return facts.has_old_log_probs || !facts.has_current_log_probs
               ? RatioSource::kOldRollout
               : RatioSource::kCurrentRollout;
  }
  if (!facts.has_current_log_probs) return RatioSource::kOldRollout;
  return facts.has_old_log_probs ? RatioSource::kCurrentOld
                                 : RatioSource::kCurrentSelf;
}

void WarnOfDriftAlone(bool is_sent, bool is_answered, std::string_view name,
                      std::vector<std::string>* warnings) {
  if (!is_sent || is_answered) return;
  warnings->push_back(
      Concat(name,
             " was sent, but this block computes nothing from it: it shows as "
             "drift in the server's metrics alone."));
}

}  // namespace counterweight::server
