#include "server/observe/web_request.h"

#include <arpa/inet.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "openssl/evp.h"

namespace counterweight::server {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kBlank = " \t";

bool SameWord(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// Takes the text before the first `mark`, and the mark, from *text; all if
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

// "/path", or "http://host/path" of clients that think that we are a proxy;
// then *host is set.
std::string_view PathOf(std::string_view target, std::string_view* host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?#"), target.size());
    *host = target.substr(0, end);
    return target.substr(end).starts_with('/') ? target.substr(end) : "/";
  }
  return target;
}

bool IsIpAddress(const std::string& host) {
  in6_addr address;
  return host.starts_with('[') && host.ends_with(']')
             ? inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(),
                         &address) == 1
             : inet_pton(AF_INET, host.c_str(), &address) == 1;
}

}  // namespace

std::optional<WebRequest> ParseWebRequest(std::string_view head) {
  std::string_view line = Take(kLineEnd, &head);
  if (!IsText(line)) return std::nullopt;
  WebRequest request;
  request.method = Take(" ", &line);
  std::string_view whole_host;
  std::string_view target = PathOf(Take(" ", &line), &whole_host);
  if (request.method.empty() || !target.starts_with('/') ||
      (line != "HTTP/1.1" && line != "HTTP/1.0")) {
    return std::nullopt;
  }
  request.path = Take("?", &target);
  request.query = target;
  bool has_host = false;
  bool has_authorization = false;
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
      if (std::exchange(has_authorization, true)) return std::nullopt;
      request.authorization = value;
    } else if (SameWord(name, "host")) {
      if (std::exchange(has_host, true)) return std::nullopt;
      request.host = value;
    } else if (SameWord(name, "accept-encoding")) {
      request.accept_encoding = value;
    }
  }
  // RFC 9112, 3.2.2: the address counts, not the field.
  if (!whole_host.empty()) request.host = whole_host;
  return request;
}

bool IsOwnHost(std::string_view host, const std::vector<std::string>& names) {
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos &&
      host.find_first_not_of("0123456789", colon + 1) ==
          std::string_view::npos) {
    host = host.substr(0, colon);
  }
  if (IsIpAddress(std::string(host))) return true;
  const bool is_label = std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  return (is_label && !host.empty()) ||
         std::any_of(names.begin(), names.end(), [&](const std::string& name) {
           return SameWord(name, host);
         });
}

std::string BearerOf(std::string_view authorization) {
  constexpr std::string_view kBasic = "Basic ";
  if (!SameWord(authorization.substr(0, kBasic.size()), kBasic)) {
    return std::string(authorization);
  }
  authorization.remove_prefix(kBasic.size());
  std::string text(authorization.size(), '\0');
  const int size = EVP_DecodeBlock(
      reinterpret_cast<unsigned char*>(text.data()),
      reinterpret_cast<const unsigned char*>(authorization.data()),
      static_cast<int>(authorization.size()));
  if (size < 0) return "";
  // It counts '=' padding as zeros.
  text.resize(static_cast<size_t>(size));
  text.resize(text.find_last_not_of('\0') + 1);
  return "Bearer " + text.substr(text.find(':') + 1);
}

bool TakesGzip(std::string_view accept_encoding) {
  while (!accept_encoding.empty()) {
    std::string_view weight = Take(",", &accept_encoding);
    if (!SameWord(WithoutBlanks(Take(";", &weight)), "gzip")) continue;
    weight = WithoutBlanks(weight);
    const bool is_given = SameWord(weight.substr(0, 2), "q=");
    // "0", "0." or "0.000".
    return !is_given ||
           weight.find_first_not_of("0.", 2) != std::string_view::npos;
  }
  return false;
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
