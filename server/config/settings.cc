#include "server/config/settings.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/engine/names.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Longer values are shown in part.
constexpr size_t kMaxShownBytes = 200;

std::string DescribeOrigin(const Origin& origin) {
  switch (origin.source) {
    case Source::kDefault:
      return "default";
    case Source::kFile:
      return origin.place;
    case Source::kEnvironment:
      return "environment: " + origin.place;
    case Source::kFlag:
      return "flag";
  }
  return "";
}

// Numbers and booleans as they are, all else in quotes: the escapes of JSON are
// YAML's too.
std::string YamlValue(const std::string& value) {
  const bool is_number =
      !value.empty() &&
      std::all_of(value.begin(), value.end(),
                  [](char c) { return (c >= '0' && c <= '9') || c == '.'; }) &&
      std::count(value.begin(), value.end(), '.') <= 1;
  if (is_number || value == "true" || value == "false") return value;
  using nlohmann::json;
  return json(value).dump(-1, ' ', false, json::error_handler_t::replace);
}

// True if `sentence` has "--name" and no longer name that begins so.
bool Names(std::string_view sentence, std::string_view name) {
  const std::string dashed = Concat("--", name);
  for (size_t at = sentence.find(dashed); at != sentence.npos;
       at = sentence.find(dashed, at + 1)) {
    const size_t end = at + dashed.size();
    const char next = end < sentence.size() ? sentence[end] : ' ';
    if (next != '_' && std::isalnum(static_cast<unsigned char>(next)) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string Apply(std::span<const Setting> settings, Settings* result) {
  const std::span<const Flag> flags = Flags();
  // Each list as the current source has given it so far.
  std::vector<std::string> lists(flags.size());
  for (const Setting& setting : settings) {
    const auto index = static_cast<size_t>(setting.flag - flags.data());
    Origin& origin = result->origins[index];
    std::string value = setting.value;
    if (setting.flag->collects()) {
      if (origin.source == setting.source) {
        value = Concat(lists[index], ",", value);
      }
      lists[index] = value;
    }
    const std::string wrong = setting.flag->set(value, &result->config);
    if (!wrong.empty()) {
      return fmt::format("{}={}: {}", setting.place, Printable(value),
                         Printable(wrong));
    }
    origin.source = setting.source;
    const std::string_view place = setting.place;
    origin.place = setting.source == Source::kFile
                       ? place.substr(0, place.rfind(": "))
                       : place;
  }
  return "";
}

std::string WithOrigins(std::string sentence, const Settings& settings) {
  std::string added;
  const std::span<const Flag> flags = Flags();
  for (size_t i = 0; i < flags.size(); ++i) {
    const Origin& origin = settings.origins[i];
    if ((origin.source != Source::kFile &&
         origin.source != Source::kEnvironment) ||
        !Names(sentence, flags[i].name)) {
      continue;
    }
    added += fmt::format("{}--{} comes from {}", added.empty() ? "" : ", ",
                         flags[i].name, origin.place);
  }
  if (!added.empty()) sentence += " (" + added + ")";
  return sentence;
}

std::string ToYaml(const Settings& settings) {
  std::string text;
  const std::span<const Flag> flags = Flags();
  for (size_t i = 0; i < flags.size(); ++i) {
    const Flag& flag = flags[i];
    // Only a chosen device is required; the default one may be absent.
    const bool is_unset =
        flag.name == "devices" && !settings.config.devices.is_given;
    text += fmt::format("{}{}: {}  # {}\n", is_unset ? "# " : "", flag.name,
                        YamlValue(flag.get(settings.config)),
                        Printable(DescribeOrigin(settings.origins[i])));
  }
  return text;
}

std::vector<std::string_view> FlagNames() {
  std::vector<std::string_view> names;
  for (const Flag& flag : Flags()) names.push_back(flag.name);
  return names;
}

std::string Printable(std::string_view text) {
  const std::string_view shown = Shorten(text, kMaxShownBytes);
  std::string printable(shown);
  for (char& c : printable) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 0x7F) c = '?';
  }
  if (shown.size() < text.size()) printable += "...";
  return printable;
}

}  // namespace counterweight::server
