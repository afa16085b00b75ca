// Reads and writes the values of flags: a setter returns what is wrong with its
// text, or nothing.
#ifndef COUNTERWEIGHT_SERVER_CONFIG_FLAG_VALUES_H_
#define COUNTERWEIGHT_SERVER_CONFIG_FLAG_VALUES_H_

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "server/config/config.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {

inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
inline constexpr double kMaxSeconds = 86400.0;

// True if all of `text` is one number. A zero in front is none's: YAML and C
// read 010 as 8.
template <typename Number>
bool ParseNumber(std::string_view text, Number* number) {
  const size_t first = text.starts_with('-') ? 1 : 0;
  if (text.size() > first + 1 && text[first] == '0' && text[first + 1] >= '0' &&
      text[first + 1] <= '9') {
    return false;
  }
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *number);
  return result.ec == std::errc() && result.ptr == end;
}

template <int64_t Config::*field, int64_t low, int64_t high>
std::string SetInteger(std::string_view value, Config* config) {
  int64_t number = 0;
  if (!ParseNumber(value, &number) || number < low || number > high) {
    return fmt::format("must be an integer from {} to {}", low, high);
  }
  config->*field = number;
  return "";
}

template <int64_t Config::*field>
std::string GetInteger(const Config& config) {
  return fmt::format("{}", config.*field);
}

template <double Config::*field>
std::string SetSeconds(std::string_view value, Config* config) {
  double number = 0;
  // The negation refuses NaN too.
  if (!ParseNumber(value, &number) || !(number >= 0 && number <= kMaxSeconds)) {
    return fmt::format("must be a number of seconds from 0 to {}", kMaxSeconds);
  }
  config->*field = number;
  return "";
}

template <double Config::*field>
std::string GetSeconds(const Config& config) {
  return fmt::format("{}", config.*field);
}

template <double Config::*field>
std::string SetSecondOrMore(std::string_view value, Config* config) {
  std::string error = SetSeconds<field>(value, config);
  if (error.empty() && config->*field < 1) error = "must be at least 1";
  return error;
}

template <bool Config::*field>
std::string SetBoolean(std::string_view value, Config* config) {
  if (value != "true" && value != "false") return "must be true or false";
  config->*field = value == "true";
  return "";
}

template <bool Config::*field>
std::string GetBoolean(const Config& config) {
  return config.*field ? "true" : "false";
}

template <std::string Config::*field>
std::string SetPath(std::string_view value, Config* config) {
  config->*field = std::string(value);
  return "";
}

template <std::string Config::*field>
std::string GetPath(const Config& config) {
  return config.*field;
}

std::string SetListen(std::string_view value, Config* config);
std::string GetListen(const Config& config);
std::string SetMetricsListen(std::string_view value, Config* config);
std::string GetMetricsListen(const Config& config);
std::string SetMetricsHosts(std::string_view value, Config* config);
std::string GetMetricsHosts(const Config& config);
std::string SetBackend(std::string_view value, Config* config);
std::string GetBackend(const Config& config);
std::string SetDevices(std::string_view value, Config* config);
std::string GetDevices(const Config& config);
std::string SetLogLevel(std::string_view value, Config* config);
std::string GetLogLevel(const Config& config);
std::string SetClientNames(std::string_view value, Config* config);
std::string GetClientNames(const Config& config);
std::string SetSocketModeFlag(std::string_view value, Config* config);
std::string GetSocketModeFlag(const Config& config);
std::string SetUids(std::string_view value, Config* config);
std::string GetUids(const Config& config);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CONFIG_FLAG_VALUES_H_
