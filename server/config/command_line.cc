#include "server/config/command_line.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "server/config/config_file.h"
#include "server/config/probe.h"
#include "server/engine/names.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Flags of the command line alone, beside those of Flags().
struct Option {
  std::string_view name;
  std::string_view help;
  // Returns what is wrong with the value.
  std::string (*set)(std::string_view value, CommandLine* line);
  bool is_bool = false;
};

template <bool CommandLine::*field>
std::string SetBool(std::string_view value, CommandLine* line) {
  if (value != "true" && value != "false") return "must be true or false";
  line->*field = value == "true";
  return "";
}

template <std::string CommandLine::*field>
std::string SetText(std::string_view value, CommandLine* line) {
  line->*field = std::string(value);
  return value.empty() ? "must not be empty" : "";
}

std::string SetProbe(std::string_view value, CommandLine* line) {
  line->probe.target = std::string(value);
  return CheckProbeTarget(value);
}

std::string SetProbeTimeout(std::string_view value, CommandLine* line) {
  constexpr double kMost = 3600;
  const char* const end = value.data() + value.size();
  double& seconds = line->probe.timeout_s;
  const auto read = std::from_chars(value.data(), end, seconds);
  // The negation refuses NaN too.
  if (read.ec != std::errc() || read.ptr != end ||
      !(seconds >= 0.001 && seconds <= kMost)) {
    return fmt::format("must be a number of seconds from 0.001 to {}", kMost);
  }
  return "";
}

constexpr Option kOptions[] = {
    {"config",
     "YAML file with values for the flags above, by their names. Flags win "
     "over the environment (COUNTERWEIGHT_ and the flag's name in capitals), "
     "which wins over the file. SIGHUP reads it again.",
     SetText<&CommandLine::config_file>},
    {"check_config",
     "Exit with code 0 if the configuration is valid, or with 2 and a sentence "
     "about the first mistake. Files of certificates and tokens are not read.",
     SetBool<&CommandLine::check_config>, true},
    {"probe",
     "Ask the server at host:port or unix:path for its health, and exit with "
     "code 0 if it serves, else with 1. Takes the server's own configuration, "
     "whose --tls_certificate it trusts and presents over TCP.",
     SetProbe},
    {"probe_timeout", "Seconds that --probe waits (default: 1).",
     SetProbeTimeout},
    {"hash_token",
     "Read a token on stdin and print its line for --tokens, with this name.",
     SetText<&CommandLine::hash_token>},
    {"help", "Print this.", SetBool<&CommandLine::help>, true},
    {"version", "Print the version.", SetBool<&CommandLine::version>, true},
};

const Option* FindOption(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kOptions), std::end(kOptions),
                   [&](const Option& option) { return option.name == name; });
  return found == std::end(kOptions) ? nullptr : found;
}

std::string UnknownFlag(std::string_view name) {
  std::vector<std::string_view> names = FlagNames();
  for (const Option& option : kOptions) names.push_back(option.name);
  const std::string_view nearest = NearestName(name, names);
  return fmt::format("unknown flag --{}{}", Printable(name),
                     nearest.empty()
                         ? std::string("; see --help")
                         : fmt::format(": did you mean --{}?", nearest));
}

// Reads the arguments; a sentence if one is wrong.
std::string ReadArguments(const std::vector<std::string_view>& arguments,
                          CommandLine* line, std::vector<Setting>* settings) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view name = arguments[i];
    if (name == "-h") name = "--help";
    if (!name.starts_with("--")) {
      return fmt::format(
          "unexpected argument '{}': flags start with --; see --help",
          Printable(name));
    }
    name.remove_prefix(2);
    const size_t equals = name.find('=');
    const bool has_value = equals != std::string_view::npos;
    std::string_view value = has_value ? name.substr(equals + 1) : "true";
    name = name.substr(0, equals);
    const Option* const option = FindOption(name);
    const Flag* const flag = FindFlag(name);
    if (option == nullptr && flag == nullptr) return UnknownFlag(name);
    const bool is_bool = option != nullptr ? option->is_bool : flag->is_bool();
    if (!has_value && !is_bool) {
      if (++i == arguments.size()) {
        return fmt::format("--{} needs a value; see --help", name);
      }
      value = arguments[i];
    }
    if (flag != nullptr) {
      settings->push_back(
          {flag, std::string(value), Source::kFlag, Concat("--", name)});
      continue;
    }
    const std::string wrong = option->set(value, line);
    if (!wrong.empty()) {
      return fmt::format("--{}={}: {}", name, Printable(value), wrong);
    }
  }
  return "";
}

// Reads what is weaker than flags; a sentence if something is wrong.
std::string ReadWeakerSources(std::span<const std::string> environment,
                              CommandLine* line,
                              std::vector<Setting>* settings) {
  std::vector<Setting> weaker;
  std::vector<Setting> variables;
  std::string config_file;
  std::string error = ReadEnvironment(environment, &variables, &config_file);
  if (!error.empty()) return error;
  error = ReadOtlpOptions(environment, &line->config.otlp);
  if (!error.empty()) return error;
  if (line->config_file.empty()) line->config_file = std::move(config_file);
  if (!line->config_file.empty()) {
    error = ReadConfigFile(line->config_file, &weaker);
  }
  weaker.insert(weaker.end(), variables.begin(), variables.end());
  settings->insert(settings->begin(), weaker.begin(), weaker.end());
  return error;
}

}  // namespace

CommandLine ParseFlags(const std::vector<std::string_view>& arguments,
                       std::span<const std::string> environment) {
  CommandLine line;
  std::vector<Setting> settings;
  line.error = ReadArguments(arguments, &line, &settings);
  const bool needs_config =
      !line.help && !line.version && line.hash_token.empty();
  if (line.error.empty() && needs_config) {
    line.error = ReadWeakerSources(environment, &line, &settings);
  }
  if (line.error.empty()) line.error = Apply(settings, &line);
  if (line.error.empty() && needs_config) {
    line.error = Validate(line.config);
    if (!line.error.empty()) {
      line.error = WithOrigins(std::move(line.error), line);
    }
  }
  return line;
}

std::string FlagsHelp() {
  std::string help =
      "counterweight-server: corrects off-policy drift of LLM reinforcement "
      "learning batches over gRPC.\n\nFlags, as --name=value:\n";
  const Config defaults;
  for (const Flag& flag : Flags()) {
    help += fmt::format("\n  --{} (default: {})\n      {}{}\n", flag.name,
                        flag.get(defaults), flag.help,
                        flag.is_reloadable() ? " SIGHUP can change it." : "");
  }
  help += "\nFlags of the command line alone:\n";
  for (const Option& option : kOptions) {
    help += fmt::format("\n  --{}\n      {}\n", option.name, option.help);
  }
  return help;
}

}  // namespace counterweight::server
