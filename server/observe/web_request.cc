#include "server/observe/web_request.h"

#include <strings.h>

#include <algorithm>
#include <charconv>

namespace counterweight::server {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kBlank = " \t";

bool SameWord(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// Takes what stands before the first `mark`, and the mark, from *text; all if
// there is none.
std::string_view Take(std::string_view mark, std::string_view* text) {
  const size_t end = std::min(text->find(mark), text->size());
  const std::string_view taken = text->substr(0, end);
  text->remove_prefix(std::min(end + mark.size(), text->size()));
  return taken;
}

std::string_view WithoutBlanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Control characters have no place in a head, NUL least of all.
bool IsText(std::string_view line) {
  return std::all_of(line.begin(), line.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= ' ' && byte != 0x7f) || c == '\t';
  });
}

// "/path", or "http://host/path" of clients that think that we are a proxy.
std::string_view PathOf(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t slash = target.find('/', scheme.size());
    return slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return target;
}

}  // namespace

std::optional<WebRequest> ParseWebRequest(std::string_view head) {
  std::string_view line = Take(kLineEnd, &head);
  if (!IsText(line)) return std::nullopt;
  WebRequest request;
  request.method = Take(" ", &line);
  std::string_view target = PathOf(Take(" ", &line));
  if (request.method.empty() || !target.starts_with('/') ||
      (line != "HTTP/1.1" && line != "HTTP/1.0")) {
    return std::nullopt;
  }
  request.path = Take("?", &target);
  request.query = target;
  for (line = Take(kLineEnd, &head); !line.empty();
       line = Take(kLineEnd, &head)) {
    if (!IsText(line)) return std::nullopt;
    const size_t colon = line.find(':');
    // A blank before the colon, or a line that goes on, is read differently by
    // different programs.
    if (colon == 0 || colon == std::string_view::npos ||
        line.find_first_of(kBlank) < colon) {
      return std::nullopt;
    }
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = WithoutBlanks(line.substr(colon + 1));
    if (SameWord(name, "authorization")) {
      if (!request.authorization.empty()) return std::nullopt;
      request.authorization = value;
    } else if (SameWord(name, "accept-encoding")) {
      request.accept_encoding = value;
    }
  }
  return request;
}

std::string QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    std::string_view pair = Take("&", &query);
    if (Take("=", &pair) != name) continue;
    std::string value;
    for (; !pair.empty(); pair.remove_prefix(1)) {
      unsigned char byte = 0;
      if (pair[0] == '%' && pair.size() > 2 &&
          std::from_chars(pair.data() + 1, pair.data() + 3, byte, 16).ptr ==
              pair.data() + 3) {
        value += static_cast<char>(byte);
        pair.remove_prefix(2);
      } else {
        value += pair[0] == '+' ? ' ' : pair[0];
      }
    }
    return value;
  }
  return "";
}

}  // namespace counterweight::server
