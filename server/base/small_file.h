// Files that an operator writes: certificates, tokens, the configuration.
#ifndef COUNTERWEIGHT_SERVER_BASE_SMALL_FILE_H_
#define COUNTERWEIGHT_SERVER_BASE_SMALL_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace counterweight::server {

// Returns the text of the regular file at `path`, of at most 1 MiB. The message
// of an error is the end of a sentence ("it cannot be read: ...").
absl::StatusOr<std::string> ReadSmallFile(const std::string& path);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_SMALL_FILE_H_
