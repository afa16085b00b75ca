#include "tests/conformance/server/memory_socket.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace counterweight::conformance {
namespace {

constexpr uint32_t kRegister = 1;
constexpr uint32_t kRelease = 2;
constexpr uint32_t kReads = 1;

// Receives one packet and its descriptor.
bool Receive(int connection, void* packet, size_t bytes, int* descriptor) {
  iovec vector{packet, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t count = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  *descriptor = -1;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (count > 0 && header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(descriptor, CMSG_DATA(header), sizeof(int));
  }
  return count == static_cast<ssize_t>(bytes);
}

}  // namespace

struct MemorySocket::Packet {
  char magic[4] = {'C', 'W', 'M', '1'};
  uint32_t kind = 0;
  uint32_t access = 0;
  uint32_t reserved = 0;
  uint64_t size = 0;
  char handle[16] = {};
};

MemorySocket::MemorySocket(const std::string& path, const json& script)
    : script_(script) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    throw std::runtime_error("the folder's path is too long for a socket");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address),
           sizeof(address)) != 0 ||
      listen(listener_, 8) != 0) {
    throw std::runtime_error("cannot listen on " + path);
  }
  acceptor_ = std::jthread([this] { Accept(); });
}

MemorySocket::~MemorySocket() {
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  Forget(/*disconnect=*/true);
  threads_.clear();
  for (const int connection : connections_) close(connection);
  close(listener_);
  for (const Region& region : forgotten_) munmap(region.data, region.bytes);
}

void MemorySocket::Accept() {
  for (;;) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    const std::lock_guard lock(mutex_);
    connections_.push_back(connection);
    threads_.emplace_back([this, connection] { Serve(connection); });
  }
}

void MemorySocket::Serve(int connection) {
  Packet packet;
  int descriptor = -1;
  while (Receive(connection, &packet, sizeof(packet), &descriptor)) {
    const Packet answer = Answer(packet, descriptor);
    if (descriptor >= 0) close(descriptor);
    // A silent server takes packets and answers none.
    if (script_.contains("silent")) continue;
    send(connection, &answer, sizeof(answer), MSG_NOSIGNAL);
  }
}

MemorySocket::Packet MemorySocket::Answer(const Packet& packet,
                                          int descriptor) {
  const std::lock_guard lock(mutex_);
  Packet answer;
  json entry = {{"operation", packet.kind}, {"bytes", packet.size}};
  if (packet.kind == kRegister) {
    const uint64_t number = registered_++;
    entry["access"] = packet.access;
    entry["number"] = registered_by_access_[packet.access]++;
    entry["seals"] = fcntl(descriptor, F_GET_SEALS);
    struct stat file {};
    fstat(descriptor, &file);
    entry["allocated"] = file.st_blocks * 512 >= file.st_size;
    if (number < script_.value("refusals", uint64_t{0})) {
      answer.kind = script_.value("code", uint32_t{8});
    } else {
      const int protection =
          packet.access == kReads ? PROT_READ : PROT_READ | PROT_WRITE;
      void* const data =
          mmap(nullptr, packet.size, protection, MAP_SHARED, descriptor, 0);
      if (data == MAP_FAILED) {
        answer.kind = 3;
      } else {
        std::memcpy(answer.handle, &number, sizeof(number));
        answer.handle[15] = 1;
        regions_[{answer.handle, sizeof(answer.handle)}] = {
            static_cast<std::byte*>(data), packet.size};
      }
    }
  } else if (packet.kind == kRelease) {
    const auto found = regions_.find({packet.handle, sizeof(packet.handle)});
    answer.kind = found == regions_.end() ? 5 : 0;
    if (found != regions_.end()) {
      forgotten_.push_back(found->second);
      regions_.erase(found);
    }
  }
  entry["answer"] = answer.kind;
  packets_.push_back(std::move(entry));
  return answer;
}

std::span<std::byte> MemorySocket::Find(
    const v1::SharedMemoryRange& range) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(range.handle());
  if (found == regions_.end() || range.length() > found->second.bytes ||
      range.offset() > found->second.bytes - range.length()) {
    return {};
  }
  return {found->second.data + range.offset(), range.length()};
}

void MemorySocket::Forget(bool disconnect) {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, region] : regions_) forgotten_.push_back(region);
  regions_.clear();
  if (!disconnect) return;
  for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
}

json MemorySocket::packets() const {
  const std::lock_guard lock(mutex_);
  return packets_;
}

}  // namespace counterweight::conformance
