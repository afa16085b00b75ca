// Names that callers write, in messages: quoted, and the known name that an
// unknown one may stand for.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_NAMES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_NAMES_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace counterweight::server {

// Bytes of a caller's name that a message shows, and the longest name that is
// compared with others: a name may be as long as the message that it came in.
inline constexpr size_t kMaxNameBytes = 64;

// The parts one after the other; each is a string, a string_view or a literal.
// (Debian's abseil has a string_view of its own, which std's does not become.)
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string text;
  (text.append(std::string_view(parts)), ...);
  return text;
}

// The first `max_bytes` of `text`, or fewer, so that no UTF-8 character is cut
// in two: a message field of type string must stay valid.
std::string_view Shorten(std::string_view text,
                         size_t max_bytes = kMaxNameBytes);

// Shorten(text) in single quotes, with "..." where something was cut.
std::string Quote(std::string_view text);

// "a, b, c".
std::string JoinNames(std::span<const std::string_view> names);

// The smallest number of edits that make `b` of `a`: a character inserted,
// removed, replaced, or swapped with its neighbour; no character is edited
// twice. ASCII letters are equal to their other case. The time is proportional
// to a.size() * b.size().
size_t EditDistance(std::string_view a, std::string_view b);

// The entry of `names` with the smallest edit distance to `name`, the first of
// several. Empty if the distance is more than a third of the longer name, or if
// `name` is longer than kMaxNameBytes.
std::string_view NearestName(std::string_view name,
                             std::span<const std::string_view> names);

// The sentence "Did you mean 'x'? ", with the blank at its end, about the
// NearestName; empty if there is none.
std::string DidYouMean(std::string_view name,
                       std::span<const std::string_view> names);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_NAMES_H_
