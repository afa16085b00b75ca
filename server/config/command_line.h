// The configuration of the program: flags win over the environment, which wins
// over the file of --config.
#ifndef COUNTERWEIGHT_SERVER_CONFIG_COMMAND_LINE_H_
#define COUNTERWEIGHT_SERVER_CONFIG_COMMAND_LINE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/config.h"
#include "server/config/probe.h"
#include "server/config/settings.h"

namespace counterweight::server {

struct CommandLine : Settings {
  // The value of --config or COUNTERWEIGHT_CONFIG; empty: none.
  std::string config_file;
  // Tasks other than serving, each set by the flag of its name.
  bool help = false;
  bool version = false;
  bool check_config = false;
  ProbeRequest probe;  // its target is empty: none
  // The name for the token on stdin that is to be hashed; empty: none.
  std::string hash_token;
  // A sentence that names the flag, the variable, or file, line and key; empty
  // if all is well. If it is set nothing else is valid.
  std::string error;
};

// Reads the arguments after the program's name: --name=value, --name value;
// --name alone for booleans. A flag given twice: the last one counts, but
// --listen collects. `environment` has entries "NAME=value". Also applies
// Validate(config). With --help, --version and --hash_token neither the
// environment nor the file is read.
CommandLine ParseFlags(const std::vector<std::string_view>& arguments,
                       std::span<const std::string> environment = {});

// Returns the text of --help: every flag with its meaning, unit, range and
// default.
std::string FlagsHelp();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CONFIG_COMMAND_LINE_H_
