#include "server/access/run_patterns.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "spdlog/fmt/fmt.h"
#include "spdlog/fmt/ranges.h"

namespace counterweight::server {
namespace {

constexpr size_t kMaxPatterns = 64;
constexpr size_t kMaxPatternBytes = 64;

bool IsPattern(std::string_view text) {
  return !text.empty() && text.size() <= kMaxPatternBytes &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' ||
                  c == '*';
         });
}

// Takes at most the product of both lengths: on a mismatch only the last '*'
// takes one more character.
bool Matches(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t after_star = std::string_view::npos;
  size_t star_end = 0;  // what the last '*' has taken ends before this
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_end = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (after_star != std::string_view::npos) {
      p = after_star;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace

bool RunPatterns::Parse(std::string_view text, RunPatterns* patterns) {
  std::vector<std::string> read;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pattern = text.substr(0, comma);
    if (!IsPattern(pattern) || read.size() == kMaxPatterns) return false;
    read.emplace_back(pattern);
    if (comma == text.size()) break;
    text.remove_prefix(comma + 1);
  }
  patterns->patterns_ = std::move(read);
  return true;
}

bool RunPatterns::Allow(std::string_view run) const {
  return patterns_.empty() || std::any_of(patterns_.begin(), patterns_.end(),
                                          [run](const std::string& each) {
                                            return Matches(each, run);
                                          });
}

std::string RunPatterns::ToString() const {
  return fmt::format("{}", fmt::join(patterns_, ","));
}

}  // namespace counterweight::server
