#include "server/listen_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <cstring>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// The path, with its terminating zero, must fit into sockaddr_un.
constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof(v4));
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address, sizeof(v6));
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
  }
  return false;
}

bool ParsePort(std::string_view text, uint16_t* port) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *port);
  return result.ec == std::errc() && result.ptr == end;
}

bool ParseUnix(std::string_view text, std::string_view path,
               ListenAddress* address, std::string* error) {
  if (path.empty() || path.size() > kMaxSocketPath) {
    *error = fmt::format(
        "the socket path of '{}' has {} bytes; it must have 1 to {}", text,
        path.size(), kMaxSocketPath);
    return false;
  }
  *address = ListenAddress{.host = "", .port = 0, .path = std::string(path)};
  return true;
}

}  // namespace

std::string ListenAddress::ToString() const {
  if (IsUnix()) return "unix:" + path;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool ParseListenAddress(std::string_view text, ListenAddress* address,
                        std::string* error) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) {
    return ParseUnix(text, text.substr(kUnix.size()), address, error);
  }
  const size_t colon = text.rfind(':');
  uint16_t port = 0;
  if (colon == std::string_view::npos ||
      !ParsePort(text.substr(colon + 1), &port)) {
    *error = fmt::format(
        "'{}' is not an address; write host:port with a port of 0 to 65535, "
        "[ipv6]:port or unix:path",
        text);
    return false;
  }
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool is_ipv6 = host.find(':') != std::string_view::npos;
  // Characters that would mean something else to the libraries that bind.
  if (host.empty() || is_ipv6 != bracketed ||
      host.find_first_of("[]/,@ ") != std::string_view::npos) {
    *error = fmt::format(
        "'{}' has no valid host before its port; an IPv6 address stands in "
        "brackets",
        text);
    return false;
  }
  *address = ListenAddress{.host = std::string(host), .port = port, .path = ""};
  return true;
}

bool IsLocal(const ListenAddress& address) {
  if (address.IsUnix()) return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), nullptr, &hints, &found) != 0) {
    return false;
  }
  bool local = found != nullptr;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    local = local && IsLoopback(*a->ai_addr);
  }
  freeaddrinfo(found);
  return local;
}

}  // namespace counterweight::server
