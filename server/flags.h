// The command line: one table from which parsing, --help and the start-up log
// line are made.
#ifndef COUNTERWEIGHT_SERVER_FLAGS_H_
#define COUNTERWEIGHT_SERVER_FLAGS_H_

#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "server/config.h"

namespace counterweight::server {

struct CommandLine {
  Config config;
  bool help = false;     // --help is present
  bool version = false;  // --version is present
  // A sentence that names the flag; empty if all is well. If it is set nothing
  // else is valid.
  std::string error;
};

// Reads the arguments after the program's name: --name=value, --name value;
// --name alone for booleans. A flag given twice: the last one counts, but
// --listen collects. Also applies Validate(config).
CommandLine ParseFlags(const std::vector<std::string_view>& arguments);

// Returns the text of --help: every flag with its meaning, unit, range and
// default.
std::string FlagsHelp();

// The config as a JSON object, keyed by flag name.
nlohmann::ordered_json ToJson(const Config& config);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_FLAGS_H_
