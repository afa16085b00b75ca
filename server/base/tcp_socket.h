// Listening sockets over TCP.
#ifndef COUNTERWEIGHT_SERVER_BASE_TCP_SOCKET_H_
#define COUNTERWEIGHT_SERVER_BASE_TCP_SOCKET_H_

#include <cstdint>
#include <string>

#include "server/base/file_descriptor.h"
#include "server/base/listen_address.h"

namespace counterweight::server {

// Listens at `address`, without blocking in accept; *port is the one that was
// chosen. Returns an empty string, or the end of a sentence about the failure.
// REQUIRES: !address.IsUnix().
std::string ListenTcp(const ListenAddress& address, FileDescriptor* listening,
                      uint16_t* port);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_BASE_TCP_SOCKET_H_
