// The environment as a source of settings.
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "server/config/settings.h"
#include "server/engine/names.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kPrefix = "COUNTERWEIGHT_";

// Those of others: clients, tests and the scripts that start them.
constexpr std::string_view kNotOurs[] = {
    "TARGET", "RUN",        "TIMEOUT",        "RETRY_SECONDS", "NON_FINITE",
    "METHOD", "TOKEN_FILE", "ON_UNAVAILABLE", "PUBLISH",       "LIBRARY",
    "SERVER", "SKIP_APT",   "PEER",           "PEER_RESULTS",  "PEER_CHECKOUT",
};
// The fake GPU of programs that tests link.
constexpr std::string_view kFakeCuda = "FAKE_CUDA_";

std::string InCapitals(std::string_view name) {
  std::string capitals(name);
  for (char& c : capitals) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return capitals;
}

// Kubernetes sets variables for the services of a pod's namespace. Those for a
// service named counterweight, or counterweight-metrics, have our prefix:
// X_SERVICE_HOST, X_SERVICE_PORT, X_SERVICE_PORT_GRPC, X_PORT_50051_TCP_ADDR,
// and X_PORT, with the value tcp://10.0.0.1:50051, which is no number.
bool IsOfKubernetes(std::string_view name, std::string_view value) {
  constexpr std::string_view kPort = "_PORT_";
  const std::string padded = Concat("_", name, "_");
  const size_t port = padded.find(kPort);
  if (padded.ends_with("_SERVICE_HOST_") ||
      padded.find("_SERVICE_PORT_") != padded.npos) {
    return true;
  }
  if (port == padded.npos) return false;
  const size_t end = port + kPort.size();
  return end == padded.size() ? value.find("://") != value.npos
                              : padded[end] >= '0' && padded[end] <= '9';
}

bool IsOfOthers(std::string_view name, std::string_view value) {
  return std::find(std::begin(kNotOurs), std::end(kNotOurs), name) !=
             std::end(kNotOurs) ||
         name.starts_with(kFakeCuda) || IsOfKubernetes(name, value);
}

}  // namespace

std::string ReadEnvironment(std::span<const std::string> environment,
                            std::vector<Setting>* settings,
                            std::string* config_file) {
  std::vector<std::string_view> names = FlagNames();
  names.push_back("config");
  for (const std::string& entry : environment) {
    std::string_view variable = entry;
    variable = variable.substr(0, variable.find('='));
    if (!variable.starts_with(kPrefix) || variable.size() == entry.size()) {
      continue;
    }
    const std::string_view name = variable.substr(kPrefix.size());
    const std::string value = entry.substr(variable.size() + 1);
    const auto known = std::find_if(
        names.begin(), names.end(),
        [name](std::string_view each) { return InCapitals(each) == name; });
    if (known == names.end()) {
      if (IsOfOthers(name, value)) continue;
      const std::string_view nearest = NearestName(name, names);
      return fmt::format(
          "unknown environment variable {}{}", Printable(variable),
          nearest.empty()
              ? std::string("; see --help for the flags, whose names it takes")
              : fmt::format(": did you mean {}{}?", kPrefix,
                            InCapitals(nearest)));
    }
    if (*known == "config") {
      *config_file = value;
      continue;
    }
    const Flag* const flag = FindFlag(*known);
    // Charts and scripts set a variable to nothing to leave it unset; only a
    // flag that may be empty takes that as its value.
    Config scratch;
    if (value.empty() && !flag->set(value, &scratch).empty()) continue;
    settings->push_back(
        {flag, value, Source::kEnvironment, std::string(variable)});
  }
  return "";
}

}  // namespace counterweight::server
