// Values for flags as the command line, the environment and the configuration
// file give them.
#ifndef COUNTERWEIGHT_SERVER_CONFIG_SETTINGS_H_
#define COUNTERWEIGHT_SERVER_CONFIG_SETTINGS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/config.h"
#include "server/config/flags.h"

namespace counterweight::server {

// From the weakest to the strongest.
enum class Source : uint8_t { kDefault, kFile, kEnvironment, kFlag };

// One flag's value from one source.
struct Setting {
  const Flag* flag = nullptr;
  std::string value;
  Source source = Source::kDefault;
  // How a message names the place: "--threads", "COUNTERWEIGHT_THREADS",
  // "/etc/counterweight.yaml:3: threads".
  std::string place;
};

// The origin of a value: the source, and its place without the flag's name
// ("COUNTERWEIGHT_THREADS", "/etc/counterweight.yaml:3"; empty for others).
struct Origin {
  Source source = Source::kDefault;
  std::string place;
};

// A configuration, and for each of Flags() the origin of its value.
struct Settings {
  Config config;
  std::vector<Origin> origins = std::vector<Origin>(Flags().size());
};

// Applies `settings`, in the order of their sources, the weakest
// first. Of several values for a flag from one source the last one counts; a
// flag that collects takes those of one source together. Returns a sentence
// that names the place of the first wrong value, empty if there is none.
std::string Apply(std::span<const Setting> settings, Settings* result);

// The settings of the variables COUNTERWEIGHT_<FLAG IN CAPITALS>.
// `environment` has entries "NAME=value". `config_file` gets the value of
// COUNTERWEIGHT_CONFIG, if there is one. Other variables COUNTERWEIGHT_* are
// errors, except those of clients, of tests and of Kubernetes. Returns a
// sentence that names the variable, empty if all is well.
std::string ReadEnvironment(std::span<const std::string> environment,
                            std::vector<Setting>* settings,
                            std::string* config_file);

// Appends to a sentence that names flags ("--threads=4") their other sources:
// each flag with the variable, or with file and line, that set it.
std::string WithOrigins(std::string sentence, const Settings& settings);

// The names of all flags.
std::vector<std::string_view> FlagNames();

// `text` for a message of one line: control characters are replaced, and a long
// text is cut.
std::string Printable(std::string_view text);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CONFIG_SETTINGS_H_
