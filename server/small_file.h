// Files that an operator writes: certificates, tokens, the configuration.
#ifndef COUNTERWEIGHT_SERVER_SMALL_FILE_H_
#define COUNTERWEIGHT_SERVER_SMALL_FILE_H_

#include <string>

namespace counterweight::server {

// Reads the regular file at `path`, of at most 1 MiB. Returns false, and *error
// the end of a sentence ("it cannot be read: ..."), if that fails.
bool ReadSmallFile(const std::string& path, std::string* text,
                   std::string* error);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SMALL_FILE_H_
