// The table of flags, from which the command line, the environment, the
// configuration file, --help and the start-up log line are read and made. It is
// our own, because absl::ParseCommandLine cannot repeat a flag and CLI11 2.1
// reads `--metrics_listen= --threads=3` as one flag.
#ifndef COUNTERWEIGHT_SERVER_CONFIG_FLAGS_H_
#define COUNTERWEIGHT_SERVER_CONFIG_FLAGS_H_

#include <span>
#include <string>
#include <string_view>

#include "nlohmann/json_fwd.hpp"
#include "server/config/config.h"

namespace counterweight::server {

// Bits of Flag::traits.
inline constexpr unsigned kBool = 1;        // --name alone is --name=true
inline constexpr unsigned kList = 2;        // values separated by commas
inline constexpr unsigned kReloadable = 4;  // SIGHUP can change it
inline constexpr unsigned kCollects = 8;    // a repeated flag adds to the list

// One value of Config. The environment's COUNTERWEIGHT_<NAME IN CAPITALS> and
// the file's key `name` take the same values as --name.
struct Flag {
  std::string_view name;
  std::string_view help;
  // Replaces the config's value, or returns what is wrong with the new one.
  std::string (*set)(std::string_view value, Config* config);
  std::string (*get)(const Config& config);
  unsigned traits = 0;

  bool is_bool() const { return (traits & kBool) != 0; }
  bool is_list() const { return (traits & kList) != 0; }
  bool collects() const { return (traits & kCollects) != 0; }
  bool is_reloadable() const { return (traits & kReloadable) != 0; }
};

// In the order of --help.
std::span<const Flag> Flags();

// Returns null if no flag has this name.
const Flag* FindFlag(std::string_view name);

// The config as a JSON object, keyed by flag name.
nlohmann::ordered_json ToJson(const Config& config);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CONFIG_FLAGS_H_
