#include "client/cpp/shared_memory/control_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace counterweight::client {
namespace {

static_assert(std::endian::native == std::endian::little,
              "packets and tensors are little-endian");

constexpr char kMagic[] = {'C', 'W', 'M', '1'};
constexpr uint32_t kRegister = 1;
constexpr uint32_t kRelease = 2;
constexpr size_t kHandleBytes = 16;
constexpr size_t kMessageBytes = 200;
constexpr time_t kPatienceSeconds = 10;

Status Unavailable(const std::string& what, int error) {
  return {.code = StatusCode::kUnavailable,
          .message = "shared memory: " + what + ": " +
                     std::system_category().message(error)};
}

}  // namespace

struct ControlSocket::Packet {
  char magic[4] = {kMagic[0], kMagic[1], kMagic[2], kMagic[3]};
  // Operation of a request, gRPC status code of an answer.
  uint32_t kind = 0;
  uint32_t access = 0;
  uint32_t reserved = 0;
  uint64_t size = 0;
  char handle[kHandleBytes] = {};
};

ControlSocket::~ControlSocket() {
  if (socket_ >= 0) close(socket_);
}

Status ControlSocket::Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Unavailable("its socket's path", ENAMETOOLONG);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return Unavailable("socket", errno);
  const timeval patience{.tv_sec = kPatienceSeconds, .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    return Unavailable("cannot connect", errno);
  }
  return {};
}

bool ControlSocket::IsOpen() const {
  // The server never sends first, so any other result means that the connection
  // ended.
  char byte = 0;
  return socket_ >= 0 && recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

Status ControlSocket::Register(const Region& region, std::string* handle) {
  Packet packet;
  packet.kind = kRegister;
  packet.access = static_cast<uint32_t>(region.access());
  packet.size = region.size();
  return Exchange(packet, region.descriptor(), handle);
}

Status ControlSocket::Release(const std::string& handle) {
  Packet packet;
  packet.kind = kRelease;
  std::memcpy(packet.handle, handle.data(),
              std::min(handle.size(), kHandleBytes));
  std::string ignored;
  return Exchange(packet, /*descriptor=*/-1, &ignored);
}

Status ControlSocket::Exchange(const Packet& packet, int descriptor,
                               std::string* handle) {
  static_assert(sizeof(Packet) == 40, "as proto/README.md has it");
  iovec bytes{const_cast<Packet*>(&packet), sizeof(packet)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptor))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(descriptor));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  }
  ssize_t count = 0;
  do {
    count = sendmsg(socket_, &message, MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return Unavailable("cannot send", errno);

  struct {
    Packet packet;
    char message[kMessageBytes];
  } answer{};
  do {
    count = recv(socket_, &answer, sizeof(answer), 0);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return Unavailable("no answer", errno);
  if (count < static_cast<ssize_t>(sizeof(Packet)) ||
      std::memcmp(answer.packet.magic, kMagic, sizeof(kMagic)) != 0) {
    return Unavailable("no answer", ECONNRESET);
  }
  if (answer.packet.kind != 0) {
    return {.code = static_cast<StatusCode>(answer.packet.kind),
            .message = std::string(
                answer.message, static_cast<size_t>(count) - sizeof(Packet))};
  }
  handle->assign(answer.packet.handle, kHandleBytes);
  return {};
}

}  // namespace counterweight::client
