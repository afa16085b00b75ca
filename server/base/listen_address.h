// Addresses that the server listens on.
#ifndef COUNTERWEIGHT_SERVER_BASE_LISTEN_ADDRESS_H_
#define COUNTERWEIGHT_SERVER_BASE_LISTEN_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace counterweight::server {

// A TCP address or the path of a Unix socket.
struct ListenAddress {
  // An IPv4 address, or an IPv6 address without brackets; empty for a Unix
  // socket.
  std::string host;
  uint16_t port = 0;  // 0: the system chooses
  std::string path;   // empty for TCP

  bool IsUnix() const { return !path.empty(); }
  // "127.0.0.1:50051", "[::1]:50051", "unix:/run/counterweight.sock".
  std::string ToString() const;
};

// Reads "127.0.0.1:port", "[::1]:port" or "unix:path"; "localhost" is
// 127.0.0.1. Other names, and short forms such as "127.1", are refused. Fails
// with a sentence that names `text`.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

// True if only this machine can reach the address: a Unix socket or a loopback
// address. What is no address is not.
bool IsLocal(const ListenAddress& address);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_LISTEN_ADDRESS_H_
