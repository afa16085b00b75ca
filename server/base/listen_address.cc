#include "server/base/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <utility>

#include "server/base/config_error.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

// The path, with its terminating zero, must fit into sockaddr_un.
constexpr size_t kMaxSocketPath = sizeof(sockaddr_un::sun_path) - 1;

bool ParsePort(std::string_view text, uint16_t* port) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *port);
  return result.ec == std::errc() && result.ptr == end;
}

absl::StatusOr<ListenAddress> ParseUnix(std::string_view text,
                                        std::string_view path) {
  if (path.empty() || path.size() > kMaxSocketPath) {
    return ConfigError(fmt::format(
        "the socket path of '{}' has {} bytes; it must have 1 to {}", text,
        path.size(), kMaxSocketPath));
  }
  return ListenAddress{.host = "", .port = 0, .path = std::string(path)};
}

}  // namespace

std::string ListenAddress::ToString() const {
  if (IsUnix()) return "unix:" + path;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix)) {
    return ParseUnix(text, text.substr(kUnix.size()));
  }
  const size_t colon = text.rfind(':');
  uint16_t port = 0;
  if (colon == std::string_view::npos ||
      !ParsePort(text.substr(colon + 1), &port)) {
    return ConfigError(fmt::format(
        "'{}' is not an address; write ipv4:port with a port of 0 to 65535, "
        "[ipv6]:port, localhost:port or unix:path",
        text));
  }
  std::string host(text.substr(0, colon));
  // A name would be resolved twice, by us and by the library that binds, and
  // differently; this one has the same address everywhere.
  if (host == "localhost") host = "127.0.0.1";
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  in_addr v4;
  in6_addr v6;
  if (bracketed ? inet_pton(AF_INET6, host.c_str(), &v6) != 1
                : inet_pton(AF_INET, host.c_str(), &v4) != 1) {
    return ConfigError(fmt::format(
        "'{}' has no valid host before its port; write an IPv4 address, an "
        "IPv6 address in brackets, or localhost: other names are not resolved",
        text));
  }
  return ListenAddress{.host = std::move(host), .port = port, .path = ""};
}

bool IsLocal(const ListenAddress& address) {
  if (address.IsUnix()) return true;
  if (in_addr v4; inet_pton(AF_INET, address.host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24U) == IN_LOOPBACKNET;
  }
  in6_addr v6;
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace counterweight::server
