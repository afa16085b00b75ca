// What is wrong with a request, field by field.
#ifndef COUNTERWEIGHT_SERVER_VIOLATION_H_
#define COUNTERWEIGHT_SERVER_VIOLATION_H_

#include <string>
#include <vector>

namespace counterweight::server {

// One violated field, as in google.rpc.BadRequest.FieldViolation. `field` is a
// path in the request, such as "method.dialect.block.rollout_is_threshold";
// `description` is a sentence that says what is wrong and what would be right.
struct Violation {
  std::string field;
  std::string description;
};

using Violations = std::vector<Violation>;

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_VIOLATION_H_
