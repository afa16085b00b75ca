// The file of --config.
#ifndef COUNTERWEIGHT_SERVER_CONFIG_CONFIG_FILE_H_
#define COUNTERWEIGHT_SERVER_CONFIG_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "server/config/settings.h"

namespace counterweight::server {

// Appends the settings of the YAML file at `path`: one mapping of flags' names
// to scalars, or, for lists, sequences of them. Returns a sentence that names
// file, line and key if the file cannot be read, is no such mapping, or has a
// key that is unknown or repeated; empty if all is well.
std::string ReadConfigFile(const std::string& path,
                           std::vector<Setting>* settings);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CONFIG_CONFIG_FILE_H_
