#include "server/embedded/failure.h"

#include <utility>

#include "server/embedded/counterweight.h"

namespace counterweight::embedded {

Failure Misuse(const char* what) { return {CW_INVALID_ARGUMENT, what, {}}; }

Failure InvalidArgument(const server::Violations& violations) {
  server::BadRequest made = server::MakeBadRequest(violations);
  return {CW_INVALID_ARGUMENT, std::move(made.message),
          std::move(made.details)};
}

}  // namespace counterweight::embedded
