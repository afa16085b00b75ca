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
constexpr uint32_t kRegisterDevice = 3;
constexpr int kNoDescriptor = -1;
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
  // Bytes of a registration; in the answer to a release of device memory,
  // whether requests use it.
  uint64_t size = 0;
  char handle[kHandleBytes] = {};
};

struct ControlSocket::DevicePacket {
  Packet head;
  DeviceUuid device{};
  std::array<char, 64> handle{};
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
  return Register(&packet, sizeof(packet), region.descriptor(), handle);
}

Status ControlSocket::Register(const DeviceAllocation& allocation,
                               Access access, std::string* handle) {
  static_assert(sizeof(DevicePacket) == 120, "as proto/README.md has it");
  DevicePacket packet;
  packet.head.kind = kRegisterDevice;
  packet.head.access = static_cast<uint32_t>(access);
  packet.head.size = allocation.size;
  packet.device = allocation.device;
  packet.handle = allocation.handle;
  return Register(&packet, sizeof(packet), kNoDescriptor, handle);
}

Status ControlSocket::Register(const void* packet, size_t size, int descriptor,
                               std::string* handle) {
  Packet answer;
  Status status = Exchange(packet, size, descriptor, &answer);
  if (status.ok()) handle->assign(answer.handle, kHandleBytes);
  return status;
}

Status ControlSocket::Release(const std::string& handle) {
  bool ignored = false;
  return Release(handle, &ignored);
}

Status ControlSocket::Release(const std::string& handle, bool* in_use) {
  Packet packet;
  packet.kind = kRelease;
  std::memcpy(packet.handle, handle.data(),
              std::min(handle.size(), kHandleBytes));
  Packet answer;
  Status status = Exchange(&packet, sizeof(packet), kNoDescriptor, &answer);
  // After a refusal the memory is released already, and so it is after the
  // connection's end. A server that does not answer may be frozen.
  *in_use = status.ok() ? answer.size != 0 : timed_out_;
  return status;
}

Status ControlSocket::Exchange(const void* packet, size_t size, int descriptor,
                               Packet* answered) {
  static_assert(sizeof(Packet) == 40, "as proto/README.md has it");
  iovec bytes{const_cast<void*>(packet), size};
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
  timed_out_ = count < 0 && errno == EAGAIN;
  if (count < 0) return Unavailable("cannot send", errno);

  struct {
    Packet packet;
    char message[kMessageBytes];
  } answer{};
  do {
    count = recv(socket_, &answer, sizeof(answer), 0);
  } while (count < 0 && errno == EINTR);
  timed_out_ = count < 0 && errno == EAGAIN;
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
  *answered = answer.packet;
  return {};
}

}  // namespace counterweight::client
