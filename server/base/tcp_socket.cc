#include "server/base/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <system_error>

namespace counterweight::server {

std::string ListenTcp(const ListenAddress& address, FileDescriptor* listening,
                      uint16_t* port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string host =
      address.host == "localhost" ? "127.0.0.1" : address.host;
  if (getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints,
                  &found) != 0) {
    return "the host is not an IP address";
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found,
                                                             freeaddrinfo);
  *listening = FileDescriptor(
      socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listening->is_open()) return std::generic_category().message(errno);
  const int on = 1;
  const int off = 0;
  // A port in TIME_WAIT may be taken, one that is listened on may not.
  setsockopt(listening->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Accepted sockets inherit it.
  setsockopt(listening->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (found->ai_family == AF_INET6) {
    setsockopt(listening->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (bind(listening->get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listening->get(), SOMAXCONN) != 0 ||
      getsockname(listening->get(), reinterpret_cast<sockaddr*>(&bound),
                  &size) != 0) {
    return "the port is taken, or the address is not ours";
  }
  *port = ntohs(found->ai_family == AF_INET6
                    ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                    : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  return "";
}

}  // namespace counterweight::server
