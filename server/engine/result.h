// A decoded part of a request, and its violations.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_RESULT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_RESULT_H_

#include "server/engine/violation.h"

namespace counterweight::server {

// With violations, `value` is as much as could be read: enough to check the
// parts that follow, not to compute.
template <class Value>
struct Result {
  Value value{};
  Violations violations;

  bool ok() const { return violations.empty(); }
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_RESULT_H_
