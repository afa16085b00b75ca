// Tensors that a dialect needs and compares.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_REQUEST_TENSORS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_REQUEST_TENSORS_H_

#include <string>
#include <string_view>
#include <vector>

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Unless `present`, reports the missing tensor `name`, e.g. "old_log_probs",
// with the clause `reason`, once per tensor.
void RequireTensor(bool present, std::string_view name, std::string_view reason,
                   Violations* violations);

// Returns the pair of the drift metrics: old and rollout, else the first
// available pair of current/rollout and current/old, else current alone. A
// request without a pair gets kOldRollout and lacks its tensors.
kernels::RatioSource DriftSource(const RequestFacts& facts);

// Warns of log-probs that change no number of this answer: the server computes
// only its drift metrics from them.
void WarnOfDriftAlone(bool is_sent, bool is_answered, std::string_view name,
                      std::vector<std::string>* warnings);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_REQUEST_TENSORS_H_
