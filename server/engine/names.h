// Callers' names in messages: quoted, and with the nearest known name.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_NAMES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_NAMES_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace counterweight::server {

// Largest number of bytes of a caller's name that a message shows or that is
// compared with known names: a name may be as long as its message.
inline constexpr size_t kMaxNameBytes = 64;

// Concatenates strings, string_views, literals and integers in decimal digits.
// (Debian's abseil has a string_view of its own, which std's does not convert
// to.)
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string text;
  const auto append = [&text](const auto& part) {
    using Part = std::remove_cvref_t<decltype(part)>;
    // Their numbers are never meant.
    static_assert(!std::is_same_v<Part, char> && !std::is_same_v<Part, bool>);
    if constexpr (std::is_integral_v<Part>) {
      text.append(std::to_string(part));
    } else {
      text.append(std::string_view(part));
    }
  };
  (append(parts), ...);
  return text;
}

// Returns the first `max_bytes` of `text`, or fewer, so that no UTF-8 character
// is cut: a message field of type string must stay valid.
std::string_view Shorten(std::string_view text,
                         size_t max_bytes = kMaxNameBytes);

// Returns Shorten(text) in single quotes, with "..." if it was cut.
std::string Quote(std::string_view text);

// "a, b, c".
std::string JoinNames(std::span<const std::string_view> names);

// Returns the smallest number of edits from `a` to `b`: a character inserted,
// removed, replaced, or swapped with its neighbour; no character is edited
// twice. The case of ASCII letters is ignored. The time is proportional to
// a.size() * b.size().
size_t EditDistance(std::string_view a, std::string_view b);

// Returns the entry of `names` with the smallest edit distance to `name`, the
// first of several. Empty if the distance exceeds a third of the longer name,
// or `name` is longer than kMaxNameBytes.
std::string_view NearestName(std::string_view name,
                             std::span<const std::string_view> names);

// Returns the sentence "Did you mean 'x'? " with a blank at its end about the
// NearestName; empty if there is none.
std::string DidYouMean(std::string_view name,
                       std::span<const std::string_view> names);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_NAMES_H_
