// Errors of what an operator wrote, as statuses. Messages are sentences, or
// the ends of sentences that begin with the flag and the file.
#ifndef COUNTERWEIGHT_SERVER_BASE_CONFIG_ERROR_H_
#define COUNTERWEIGHT_SERVER_BASE_CONFIG_ERROR_H_

#include <string>

#include "absl/status/status.h"

namespace counterweight::server {

inline absl::Status ConfigError(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

// Returns the message. Debian's abseil has a string_view of its own, which
// neither fmt nor std::string_view takes.
inline std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_CONFIG_ERROR_H_
