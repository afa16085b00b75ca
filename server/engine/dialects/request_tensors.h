// Which of a request's tensors a dialect needs and compares.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_REQUEST_TENSORS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_REQUEST_TENSORS_H_

#include <string_view>

#include "kernels/spec.h"
#include "server/engine/dialects/dialect.h"
#include "server/engine/violation.h"

namespace counterweight::server {

// Unless `present`, violates the tensor `name`, e.g. "old_log_probs", with the
// clause `reason`; a tensor that is violated already is not violated again.
void RequireTensor(bool present, std::string_view name, std::string_view reason,
                   Violations* violations);

// What drift metrics compare: old and rollout, or else the first pair that is
// there of current/rollout and current/old, or else current alone. A request
// with nothing to compare gets kOldRollout, whose tensors it then lacks.
kernels::RatioSource DriftSource(const RequestFacts& facts);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_REQUEST_TENSORS_H_
