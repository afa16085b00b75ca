#include "server/shared_memory/packet_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "server/base/unix_socket.h"

namespace counterweight::server {
namespace {

// Linux's limit of descriptors in one packet (SCM_MAX_FD). The buffer has room
// for all of them: the kernel would close the others on this thread, which
// would wait for that.
constexpr size_t kMaxDescriptors = 253;

// Takes ownership of every descriptor in `message`.
void TakeDescriptors(msghdr* message, Packet* packet) {
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr;
       header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      packet->descriptors.emplace_back(fd);
    }
  }
}

}  // namespace

Received ReceivePacket(int socket, Packet* packet) {
  *packet = Packet();
  iovec buffer{packet->buffer.data(), packet->buffer.size()};
  alignas(cmsghdr)
      std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int))>
          control{};
  msghdr message{};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size =
      recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) {
    return errno == EAGAIN || errno == EINTR ? Received::kNothing
                                             : Received::kEnd;
  }
  TakeDescriptors(&message, packet);
  if (size == 0) return Received::kEnd;
  packet->size = static_cast<size_t>(size);
  packet->lost_descriptors = (message.msg_flags & MSG_CTRUNC) != 0;
  return Received::kPacket;
}

bool SendPacket(int socket, std::string_view packet) {
  return send(socket, packet.data(), packet.size(),
              MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(packet.size());
}

std::optional<uid_t> PeerUserId(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return std::nullopt;
  }
  return peer.uid;
}

FileDescriptor ListenForPackets(const std::string& path, std::string* error) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    *error = "a socket's path has 1 to 107 bytes";
    return {};
  }
  path.copy(address.sun_path, path.size());
  FileDescriptor listening(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // No other user may connect between bind and chmod.
  const PrivateFiles private_files;
  if (!listening.is_open() ||
      bind(listening.get(), reinterpret_cast<const sockaddr*>(&address),
           sizeof(address)) != 0 ||
      listen(listening.get(), SOMAXCONN) != 0) {
    *error = std::generic_category().message(errno);
    return {};
  }
  return listening;
}

}  // namespace counterweight::server
