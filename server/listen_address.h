// Where the server listens.
#ifndef COUNTERWEIGHT_SERVER_LISTEN_ADDRESS_H_
#define COUNTERWEIGHT_SERVER_LISTEN_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace counterweight::server {

// A TCP address or the path of a Unix socket.
struct ListenAddress {
  std::string host;   // without brackets; empty for a Unix socket
  uint16_t port = 0;  // 0: the system chooses
  std::string path;   // empty for TCP

  bool IsUnix() const { return !path.empty(); }
  // "127.0.0.1:50051", "[::1]:50051", "unix:/run/counterweight.sock".
  std::string ToString() const;
};

// Reads "host:port", "[ipv6]:port" or "unix:path". On failure returns false and
// sets *error to a sentence that names `text`.
bool ParseListenAddress(std::string_view text, ListenAddress* address,
                        std::string* error);

// True if only this machine can reach the address: a Unix socket, or a host all
// of whose addresses are loopback. A host that does not resolve is not. Asks
// the resolver for names.
bool IsLocal(const ListenAddress& address);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LISTEN_ADDRESS_H_
