#include "server/engine/release.h"

#include <charconv>

#include "server/engine/names.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kField = "method.dialect.release";
constexpr int kLargestNumber = 99999;

// Removes the number at the begin of `text` and returns it.
std::optional<int> TakeNumber(std::string_view* text) {
  int number = 0;
  const char* const begin = text->data();
  const auto [end, error] =
      std::from_chars(begin, begin + text->size(), number);
  // from_chars accepts a sign.
  if (error != std::errc() || number > kLargestNumber || *begin == '-') {
    return std::nullopt;
  }
  text->remove_prefix(static_cast<size_t>(end - begin));
  return number;
}

// Accepts suffixes of the numbers: "rc1", ".dev0", "+cu128", "-alpha.2".
bool IsSuffix(std::string_view text) {
  return text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             ".+-_") == std::string_view::npos;
}

}  // namespace

std::string ToString(const Release& release) {
  return std::to_string(release.major) + "." + std::to_string(release.minor) +
         "." + std::to_string(release.patch);
}

std::optional<Release> ParseRelease(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  Release release;
  int* const numbers[] = {&release.major, &release.minor, &release.patch};
  bool is_first = true;
  for (int* const number : numbers) {
    if (!is_first) {
      if (text.size() < 2 || text[0] != '.' || text[1] < '0' || text[1] > '9') {
        break;
      }
      text.remove_prefix(1);
    }
    const std::optional<int> taken = TakeNumber(&text);
    if (!taken) return std::nullopt;
    *number = *taken;
    is_first = false;
  }
  return IsSuffix(text) ? std::optional(release) : std::nullopt;
}

AskedRelease ReadRelease(std::string_view system,
                         std::span<const DatedRelease> known,
                         std::string_view text,
                         std::vector<std::string>* warnings,
                         Violations* violations) {
  const Release newest = known.back().release;
  AskedRelease asked{.release = newest, .is_named = !text.empty()};
  if (!asked.is_named) return asked;
  const std::optional<Release> release = ParseRelease(text);
  if (!release) {
    violations->push_back(
        {std::string(kField), Concat("is ", Quote(text),
                                     "; a release is up to three numbers, such "
                                     "as ",
                                     ToString(newest))});
    return asked;
  }
  const Release oldest = known.front().release;
  if (*release < oldest) {
    violations->push_back(
        {std::string(kField),
         Concat(ToString(*release), " is older than ", ToString(oldest),
                ", the oldest release of ", system, " that is known here")});
    return asked;
  }
  if (*release > newest) {
    warnings->push_back(Concat(
        kField, ": ", system, " ", ToString(*release), " is newer than ",
        ToString(newest),
        ", the newest that this server knows; the answer is that one's."));
  }
  asked.release = *release;
  return asked;
}

}  // namespace counterweight::server
