#include "tests/server/shared_memory/shared_memory_client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace counterweight::server {
namespace {

void Check(bool ok, const char* what) {
  if (!ok) throw std::system_error(errno, std::generic_category(), what);
}

void AppendLittleEndian(uint64_t value, int bytes, std::string* to) {
  for (int i = 0; i < bytes; ++i) {
    to->push_back(static_cast<char>(value >> (8 * i)));
  }
}

}  // namespace

FileDescriptor MakeMemfd(int64_t size, int seals, Pages pages, unsigned flags) {
  FileDescriptor memfd(memfd_create(kMemfdName, flags));
  Check(memfd.is_open(), "memfd_create");
  Check(ftruncate(memfd.get(), size) == 0, "ftruncate");
  if (pages == Pages::kAll && size > 0) {
    Check(fallocate(memfd.get(), 0, 0, size) == 0, "fallocate");
  }
  if (seals != 0) {
    Check(fcntl(memfd.get(), F_ADD_SEALS, seals) == 0, "F_ADD_SEALS");
  }
  return memfd;
}

ClientMemory::ClientMemory(int64_t size)
    : size_(size),
      memfd_(MakeMemfd(size)),
      data_(static_cast<uint8_t*>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                       MAP_SHARED, memfd_.get(), 0))) {
  Check(data_ != MAP_FAILED, "mmap");
}

ClientMemory::~ClientMemory() { munmap(data_, size_); }

namespace {

std::string RegisterHead(uint32_t operation, uint64_t size,
                         RegionAccess access) {
  std::string packet = "CWM1";
  AppendLittleEndian(operation, 4, &packet);
  AppendLittleEndian(static_cast<uint32_t>(access), 4, &packet);
  AppendLittleEndian(0, 4, &packet);
  AppendLittleEndian(size, 8, &packet);
  return packet + std::string(16, '\0');
}

}  // namespace

std::string RegisterPacket(uint64_t size, RegionAccess access) {
  return RegisterHead(1, size, access);
}

std::string DevicePacket(uint64_t size, RegionAccess access,
                         const kernels::DeviceUuid& device,
                         const kernels::IpcHandle& allocation) {
  return RegisterHead(3, size, access)
      .append(device.begin(), device.end())
      .append(allocation.begin(), allocation.end());
}

std::string PartsPacket(uint64_t size, RegionAccess access,
                        const kernels::DeviceUuid& device) {
  return RegisterHead(4, size, access).append(device.begin(), device.end());
}

std::string ReleasePacket(std::string_view handle) {
  std::string packet = "CWM1";
  AppendLittleEndian(2, 4, &packet);
  packet.append(16, '\0');
  return packet.append(handle);
}

FileDescriptor SharedMemoryClient::NewSocket() {
  FileDescriptor fresh(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  Check(fresh.is_open(), "socket");
  // Only a hanging server does not answer for so long.
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  setsockopt(fresh.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return fresh;
}

SharedMemoryClient::SharedMemoryClient(const std::string& path,
                                       FileDescriptor socket)
    : socket_(std::move(socket)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  Check(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address),
                sizeof(address)) == 0,
        "connect");
}

SharedMemoryAnswer SharedMemoryClient::Register(int memfd, uint64_t size,
                                                RegionAccess access) {
  Send(RegisterPacket(size, access), {memfd});
  return MustReceive();
}

SharedMemoryAnswer SharedMemoryClient::Release(std::string_view handle) {
  return Ask(ReleasePacket(handle));
}

SharedMemoryAnswer SharedMemoryClient::Ask(std::string_view packet) {
  Send(packet);
  return MustReceive();
}

bool SharedMemoryClient::Send(std::string_view packet,
                              const std::vector<int>& descriptors) {
  iovec buffer{const_cast<char*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  const size_t bytes = descriptors.size() * sizeof(int);
  // Elements of cmsghdr provide its alignment.
  std::vector<cmsghdr> control(CMSG_SPACE(bytes) / sizeof(cmsghdr) + 1);
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  }
  const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return false;
  Check(sent >= 0, "sendmsg");
  return true;
}

std::optional<SharedMemoryAnswer> SharedMemoryClient::Receive() {
  std::array<char, 1024> buffer;
  const ssize_t size = recv(socket_.get(), buffer.data(), buffer.size(), 0);
  if (size == 0 || (size < 0 && errno == ECONNRESET)) return std::nullopt;
  Check(size > 0, "recv");
  const std::string_view packet(buffer.data(), size);
  SharedMemoryAnswer answer;
  if (packet.size() >= 40) {
    std::memcpy(&answer.code, packet.data() + 4, 4);
    answer.in_use = packet[16] == 1;
    answer.handle = packet.substr(24, 16);
    answer.message = packet.substr(40);
  }
  const bool refused = answer.code != 0;
  const std::string zeros(16, '\0');
  if (!packet.starts_with("CWM1") || packet.size() < 40 ||
      packet.substr(8, 8) != zeros.substr(8) || packet[16] < 0 ||
      packet[16] > 1 || packet.substr(17, 7) != zeros.substr(9) ||
      refused == answer.message.empty() ||
      (refused && answer.handle != zeros) || answer.message.size() > 200) {
    throw std::runtime_error("malformed answer: " + std::string(packet));
  }
  return answer;
}

void SharedMemoryClient::Finish() {
  shutdown(socket_.get(), SHUT_WR);
  while (Receive()) {
  }
}

SharedMemoryAnswer SharedMemoryClient::MustReceive() {
  std::optional<SharedMemoryAnswer> answer = Receive();
  if (!answer) throw std::runtime_error("the server ended the connection");
  return *std::move(answer);
}

}  // namespace counterweight::server
