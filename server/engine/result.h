// What a part of a request says, and everything that is wrong with it.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_RESULT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_RESULT_H_

#include "server/engine/violation.h"

namespace counterweight::server {

// Where there are violations, `value` is as much as could be read: enough to
// find what is wrong with the parts that are read next, and nothing to compute
// with.
template <class Value>
struct Result {
  Value value{};
  Violations violations;

  bool ok() const { return violations.empty(); }
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_RESULT_H_
