// Releases of other systems. Two releases may answer one block differently, and
// a block seldom shows its release.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_RELEASE_H_
#define COUNTERWEIGHT_SERVER_ENGINE_RELEASE_H_

#include <compare>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/violation.h"

namespace counterweight::server {

struct Release {
  int major = 0;
  int minor = 0;
  int patch = 0;

  // clang-tidy 14 takes the 0 inside of it for a pointer.
  auto operator<=>(const Release&) const = default;  // NOLINT
};

// "0.11.2".
std::string ToString(const Release& release);

// "0.11.2", "v0.11" (0.11.0), "1.17.0.dev0", "1.17.0rc1" (both 1.17.0: a trunk
// has what its next release will have). Nothing where `text` is none of these
// or a number is above 99999.
std::optional<Release> ParseRelease(std::string_view text);

// A release since which some blocks have other answers.
struct DatedRelease {
  Release release;
  // The change, for people: a clause, or "" for the oldest.
  std::string_view change;
};

// The release of a request.
struct AskedRelease {
  static constexpr int kAny = std::numeric_limits<int>::max();

  // The newest of all, until one is named.
  Release release = {kAny, kAny, kAny};
  // True if the request names it. Otherwise warnings name differences.
  bool is_named = false;
};

// Parses method.dialect.release; an empty `text` selects the newest of `known`.
// Versions between two known ones behave like the older; a version newer than
// all like the newest, with a sentence in *warnings. Other texts, and versions
// before the first of `known`, are violations.
AskedRelease ReadRelease(std::string_view system,
                         std::span<const DatedRelease> known,
                         std::string_view text,
                         std::vector<std::string>* warnings,
                         Violations* violations);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_RELEASE_H_
