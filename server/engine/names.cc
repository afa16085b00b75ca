#include "server/engine/names.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace counterweight::server {
namespace {

char ToLower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool Equal(char a, char b) { return ToLower(a) == ToLower(b); }

}  // namespace

std::string_view Shorten(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return text.substr(0, end);
}

std::string Quote(std::string_view text) {
  const std::string_view shown = Shorten(text);
  return Concat("'", shown, shown.size() < text.size() ? "...'" : "'");
}

std::string JoinNames(std::span<const std::string_view> names) {
  std::string joined;
  for (const std::string_view name : names) {
    if (!joined.empty()) joined += ", ";
    joined += name;
  }
  return joined;
}

// Computes the table of distances between prefixes, three rows at a time.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (Equal(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && Equal(a[i - 1], b[j - 2]) &&
          Equal(a[i - 2], b[j - 1])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string_view NearestName(std::string_view name,
                             std::span<const std::string_view> names) {
  if (name.size() > kMaxNameBytes) return {};
  std::string_view nearest;
  size_t least = kMaxNameBytes;
  for (const std::string_view candidate : names) {
    const size_t distance = EditDistance(name, candidate);
    const bool near = 3 * distance <= std::max(name.size(), candidate.size());
    if (near && distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(std::string_view name,
                       std::span<const std::string_view> names) {
  const std::string_view nearest = NearestName(name, names);
  if (nearest.empty()) return {};
  return Concat("Did you mean '", nearest, "'? ");
}

}  // namespace counterweight::server
