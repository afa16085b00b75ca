#include "server/config/settings.h"

#include <cctype>
#include <cstddef>
#include <utility>

#include "server/engine/names.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// Longer values are shown in part.
constexpr size_t kMaxShownBytes = 200;

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
