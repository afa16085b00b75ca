#include "server/config/flag_values.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "server/base/config_error.h"
#include "spdlog/fmt/ranges.h"

namespace counterweight::server {
namespace {

constexpr std::pair<std::string_view, Backend> kBackends[] = {
    {"auto", Backend::kAuto}, {"cpu", Backend::kCpu}, {"cuda", Backend::kCuda}};

std::vector<std::string_view> Split(std::string_view list) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; !list.empty() && begin <= list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

}  // namespace

std::string SetListen(std::string_view value, Config* config) {
  config->listen.clear();
  for (size_t begin = 0; begin <= value.size();) {
    const size_t comma = std::min(value.find(',', begin), value.size());
    absl::StatusOr<ListenAddress> address =
        ParseListenAddress(value.substr(begin, comma - begin));
    if (!address.ok()) return MessageOf(address.status());
    config->listen.push_back(*std::move(address));
    begin = comma + 1;
  }
  return "";
}

std::string GetListen(const Config& config) {
  std::string joined;
  for (const ListenAddress& address : config.listen) {
    joined.append(joined.empty() ? "" : ",").append(address.ToString());
  }
  return joined;
}

std::string SetMetricsListen(std::string_view value, Config* config) {
  config->metrics_listen.reset();
  if (value.empty()) return "";
  absl::StatusOr<ListenAddress> address = ParseListenAddress(value);
  if (!address.ok()) return MessageOf(address.status());
  config->metrics_listen = *std::move(address);
  return "";
}

std::string GetMetricsListen(const Config& config) {
  return config.metrics_listen ? config.metrics_listen->ToString() : "";
}

std::string SetMetricsHosts(std::string_view value, Config* config) {
  config->metrics_hosts.clear();
  for (const std::string_view name : Split(value)) {
    const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
    });
    if (name.empty() || !is_name) {
      return "must be names of hosts without ports, such as "
             "metrics.example,cw.example";
    }
    config->metrics_hosts.emplace_back(name);
  }
  return "";
}

std::string GetMetricsHosts(const Config& config) {
  return fmt::format("{}", fmt::join(config.metrics_hosts, ","));
}

std::string SetBackend(std::string_view value, Config* config) {
  for (const auto& [name, backend] : kBackends) {
    if (name != value) continue;
    config->backend = backend;
    return "";
  }
  return "must be auto, cpu or cuda";
}

std::string GetBackend(const Config& config) {
  const auto* const found = std::find_if(
      std::begin(kBackends), std::end(kBackends),
      [&](const auto& entry) { return entry.second == config.backend; });
  return std::string(found->first);
}

std::string SetDevices(std::string_view value, Config* config) {
  DeviceChoice choice{.is_given = true, .all = value == "all", .indices = {}};
  for (size_t begin = 0; !choice.all && begin <= value.size();) {
    const size_t comma = std::min(value.find(',', begin), value.size());
    int index = 0;
    if (!ParseNumber(value.substr(begin, comma - begin), &index) || index < 0) {
      return "must be all, or numbers of devices from 0 on, such as 0,2";
    }
    if (std::find(choice.indices.begin(), choice.indices.end(), index) !=
        choice.indices.end()) {
      return fmt::format("names device {} twice", index);
    }
    choice.indices.push_back(index);
    begin = comma + 1;
  }
  config->devices = std::move(choice);
  return "";
}

std::string GetDevices(const Config& config) {
  return ToString(config.devices);
}

std::string SetLogLevel(std::string_view value, Config* config) {
  constexpr std::string_view kLevels[] = {"debug", "info", "warning", "error",
                                          "off"};
  if (std::find(std::begin(kLevels), std::end(kLevels), value) ==
      std::end(kLevels)) {
    return "must be debug, info, warning, error or off";
  }
  config->log_level = std::string(value);
  return "";
}

std::string GetLogLevel(const Config& config) { return config.log_level; }

std::string SetClientNames(std::string_view value, Config* config) {
  config->tls_client_names.clear();
  for (const std::string_view name : Split(value)) {
    if (name.empty()) return "has an empty name";
    config->tls_client_names.emplace_back(name);
  }
  return "";
}

std::string GetClientNames(const Config& config) {
  return fmt::format("{}", fmt::join(config.tls_client_names, ","));
}

std::string SetSocketModeFlag(std::string_view value, Config* config) {
  constexpr uint32_t kReadAndWrite = 0666;
  constexpr uint32_t kOwner = 0600;
  const char* const end = value.data() + value.size();
  uint32_t mode = 0;
  const auto read = std::from_chars(value.data(), end, mode, 8);
  if (read.ec != std::errc() || read.ptr != end ||
      (mode & ~kReadAndWrite) != 0 || (mode & kOwner) != kOwner) {
    return "must be octal, from 0600 (the server's user) to 0666 (all users)";
  }
  config->socket_mode = mode;
  return "";
}

std::string GetSocketModeFlag(const Config& config) {
  return fmt::format("{:04o}", config.socket_mode);
}

std::string SetUids(std::string_view value, Config* config) {
  config->shared_memory_uids.clear();
  for (const std::string_view part : Split(value)) {
    if (!ParseNumber(part, &config->shared_memory_uids.emplace_back())) {
      return "must be numbers of users, such as 1000,1001";
    }
  }
  return "";
}

std::string GetUids(const Config& config) {
  return fmt::format("{}", fmt::join(config.shared_memory_uids, ","));
}

}  // namespace counterweight::server
