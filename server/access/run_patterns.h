// The runs that a token may write, as patterns of their names.
#ifndef COUNTERWEIGHT_SERVER_ACCESS_RUN_PATTERNS_H_
#define COUNTERWEIGHT_SERVER_ACCESS_RUN_PATTERNS_H_

#include <string>
#include <string_view>
#include <vector>

namespace counterweight::server {

// A list of patterns; the empty list allows every run. Immutable once parsed.
class RunPatterns {
 public:
  // Reads 1 to 64 patterns, separated by commas. A pattern has 1 to 64 of
  // [A-Za-z0-9._-] and '*', which matches any text, the empty one included.
  // False if `text` is no such list; *patterns is then unchanged.
  static bool Parse(std::string_view text, RunPatterns* patterns);

  // True if the whole name matches a pattern. A request without the label run
  // has the empty name, which only "*" matches.
  bool Allow(std::string_view run) const;

  // As Parse reads them.
  std::string ToString() const;

 private:
  std::vector<std::string> patterns_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ACCESS_RUN_PATTERNS_H_
