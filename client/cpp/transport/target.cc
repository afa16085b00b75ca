#include "client/cpp/transport/target.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace counterweight::client {
namespace {

// Bytes that the address of a Unix socket has room for.
constexpr size_t kMostPathBytes = 107;
constexpr size_t kMostLabelBytes = 63;
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHexadecimal = "0123456789abcdefABCDEF";
constexpr std::string_view kName =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
// Characters that need no escape in the path of a URI.
constexpr std::string_view kPath =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
// Names of loopback in hosts files, beside names below localhost.
constexpr std::string_view kLoopbackNames[] = {
    "localhost",     "localhost.localdomain",
    "localhost4",    "localhost4.localdomain4",
    "localhost6",    "localhost6.localdomain6",
    "ip6-localhost", "ip6-loopback"};

bool HasOnly(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == std::string_view::npos;
}

std::string Quoted(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

bool IsIpv4(const std::string& host, uint32_t* address) {
  in_addr parsed{};
  if (inet_pton(AF_INET, host.c_str(), &parsed) != 1) return false;
  *address = ntohl(parsed.s_addr);
  return true;
}

// A zone, "%eth0", may follow the address.
bool IsIpv6(const std::string& host, in6_addr* address) {
  const size_t zone = host.find('%');
  if (zone != std::string::npos &&
      (zone + 1 == host.size() || !HasOnly(host.substr(zone + 1), kName))) {
    return false;
  }
  return inet_pton(AF_INET6, host.substr(0, zone).c_str(), address) == 1;
}

// True if the host is an address and no name: no top-level domain is a number.
// Systems differ in the numeric forms that they accept.
bool EndsInNumber(std::string_view last) {
  if (last.starts_with("0x") || last.starts_with("0X")) {
    return HasOnly(last.substr(2), kHexadecimal);
  }
  return HasOnly(last, kDigits);
}

std::string CheckHost(const std::string& host) {
  if (host.empty()) return "has no host: write localhost for this machine";
  if (!HasOnly(host, std::string(kName) + ":")) {
    return "has the host " + Quoted(host) +
           ": a name has letters, digits, '-', '.' and '_'";
  }
  if (host.find(':') != std::string::npos) {
    return "has " + Quoted(host) +
           " for a host: an IPv6 address needs brackets";
  }
  std::string_view rest = host;
  if (rest.ends_with('.')) rest.remove_suffix(1);
  for (size_t dot = 0; dot != std::string_view::npos;) {
    dot = rest.find('.');
    const std::string_view label = rest.substr(0, dot);
    if (label.empty() || label.size() > kMostLabelBytes) {
      return "has the host " + Quoted(host) +
             ": between dots are 1 to 63 characters";
    }
    if (dot != std::string_view::npos) rest.remove_prefix(dot + 1);
  }
  uint32_t ignored = 0;
  if (EndsInNumber(rest) && !IsIpv4(host, &ignored)) {
    return "has the host " + Quoted(host) +
           ": an IPv4 address has four numbers from 0 to 255";
  }
  return "";
}

std::string ParseAddress(std::string_view text, std::string* host) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.ends_with(']') ||
      colon + 1 == text.size()) {
    return "has no port: a server listens on 50051 by default";
  }
  const std::string_view port = text.substr(colon + 1);
  if (!HasOnly(port, kDigits)) {
    return "has the port " + Quoted(port) + ", which is no number";
  }
  int number = 0;
  const auto parsed =
      std::from_chars(port.data(), port.data() + port.size(), number);
  if (parsed.ec != std::errc() || number < 1 || number > UINT16_MAX) {
    return "has the port " + std::string(port) +
           ", which is not from 1 to 65535";
  }
  *host = text.substr(0, colon);
  if (!host->starts_with('[')) return CheckHost(*host);
  const std::string whole = *host;
  in6_addr ignored{};
  *host = whole.substr(1, whole.size() - 2);
  if (!whole.ends_with(']') || !IsIpv6(*host, &ignored)) {
    return "has " + Quoted(whole) + " for an IPv6 address";
  }
  return "";
}

// Splits "//AUTHORITY/REST" off; without it all is the rest.
std::string_view WithoutAuthority(std::string_view text,
                                  std::string* authority) {
  if (!text.starts_with("//")) return text;
  const size_t slash = std::min(text.find('/', 2), text.size());
  *authority = text.substr(2, slash - 2);
  return text.substr(slash);
}

std::string_view WithoutSlash(std::string_view text) {
  return text.starts_with('/') ? text.substr(1) : text;
}

// The path as gRPC reads it: it decodes targets as URIs.
std::string Encoded(std::string_view path) {
  constexpr char kDigit[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : path) {
    if (kPath.find(c) != std::string_view::npos) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += {'%', kDigit[byte / 16], kDigit[byte % 16]};
  }
  return encoded;
}

std::string CheckPath(const Target& target, std::string_view path) {
  if (path.find_first_of("?#") != std::string_view::npos) {
    return "has a query or a fragment, which a socket has not";
  }
  if (std::any_of(path.begin(), path.end(),
                  [](unsigned char c) { return c < ' ' || c == '\x7f'; })) {
    return "has a control character in its path";
  }
  if (path.empty() || (target.scheme == "unix" && path.ends_with('/'))) {
    return "has no path of a socket";
  }
  if (path.size() > kMostPathBytes) {
    return "has a path of " + std::to_string(path.size()) +
           " bytes; a socket's has at most 107";
  }
  return "";
}

std::string ParseList(std::string_view text, Target* target) {
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    const std::string_view member = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    std::string host;
    const std::string problem = ParseAddress(member, &host);
    if (!problem.empty()) {
      return "has the address " + Quoted(member) + ", which " + problem;
    }
    uint32_t v4 = 0;
    in6_addr v6{};
    if (target->scheme == "ipv4" ? !IsIpv4(host, &v4) : !IsIpv6(host, &v6)) {
      return "has the address " + Quoted(member) + ", which is no " +
             target->scheme + " address";
    }
    target->hosts.push_back(std::move(host));
  }
  return "";
}

bool IsLoopback(const std::string& host, bool or_unspecified) {
  uint32_t v4 = 0;
  if (IsIpv4(host, &v4)) {
    return v4 >> 24U == IN_LOOPBACKNET || (or_unspecified && v4 == 0);
  }
  in6_addr v6{};
  if (!IsIpv6(host, &v6)) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    return v6.s6_addr[12] == IN_LOOPBACKNET ||
           (or_unspecified && v6.s6_addr32[3] == 0);
  }
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (or_unspecified && IN6_IS_ADDR_UNSPECIFIED(&v6));
}

// An unspecified address connects to loopback.
bool MayBeThisMachine(std::string host) {
  if (IsLoopback(host, /*or_unspecified=*/true)) return true;
  std::transform(host.begin(), host.end(), host.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (host.ends_with('.')) host.pop_back();
  return host.ends_with(".localhost") ||
         std::find(std::begin(kLoopbackNames), std::end(kLoopbackNames),
                   host) != std::end(kLoopbackNames);
}

}  // namespace

std::string ParseTarget(std::string_view text, Target* target) {
  *target = {.text = std::string(text)};
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view scheme = text.substr(0, colon);
  const std::string_view rest =
      colon < text.size() ? text.substr(colon + 1) : "";
  if (scheme == "unix" || scheme == "unix-abstract") {
    target->scheme = scheme;
    const std::string_view path = WithoutAuthority(rest, &target->authority);
    if (!target->authority.empty()) {
      return "takes " + Quoted(target->authority) +
             " for another machine: a path begins with one or three slashes";
    }
    target->text = std::string(scheme) + ":" + Encoded(path);
    return CheckPath(*target, path);
  }
  if (scheme == "ipv4" || scheme == "ipv6") {
    target->scheme = scheme;
    const std::string_view members = WithoutAuthority(rest, &target->authority);
    if (!target->authority.empty()) {
      return "has " + Quoted(target->authority) + " before its addresses";
    }
    return ParseList(WithoutSlash(members), target);
  }
  if (scheme == "dns") {
    target->scheme = scheme;
    const std::string_view address = WithoutAuthority(rest, &target->authority);
    return ParseAddress(WithoutSlash(address), &target->hosts.emplace_back());
  }
  if (text.find("://") != std::string_view::npos) {
    return "has the scheme " + Quoted(scheme) + ", which is none of a server";
  }
  return ParseAddress(text, &target->hosts.emplace_back());
}

bool IsSocket(const Target& target) {
  return target.scheme == "unix" || target.scheme == "unix-abstract";
}

bool IsList(const Target& target) {
  return target.scheme == "ipv4" || target.scheme == "ipv6";
}

bool StaysHere(const Target& target) {
  if (target.hosts.empty()) return IsSocket(target);
  // A name server elsewhere may resolve localhost to any address.
  return target.authority.empty() &&
         std::all_of(target.hosts.begin(), target.hosts.end(),
                     [](const std::string& host) {
                       return host == "localhost" || IsLoopback(host, false);
                     });
}

bool MayStayHere(const Target& target) {
  return IsSocket(target) || std::any_of(target.hosts.begin(),
                                         target.hosts.end(), MayBeThisMachine);
}

}  // namespace counterweight::client
