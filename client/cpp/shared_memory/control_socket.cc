#include "client/cpp/shared_memory/control_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <stop_token>
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
// For one answer. A server answers at once, unless it is stuck.
constexpr std::chrono::seconds kPatience{10};

using std::chrono::steady_clock;

Status Unavailable(const std::string& what, int error) {
  return {.code = StatusCode::kUnavailable,
          .message = "shared memory: " + what + ": " +
                     std::system_category().message(error)};
}

// Ends a wait when a stop is requested.
class Waker {
 public:
  explicit Waker(const std::stop_token& stop)
      : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), on_stop_(stop, [this] {
          const uint64_t one = 1;
          [[maybe_unused]] const ssize_t sent =
              write(event_, &one, sizeof(one));
        }) {}
  ~Waker() {
    if (event_ >= 0) close(event_);
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Waits until `descriptor` is readable, the time is over, or a stop is
  // requested.
  void Wait(int descriptor, steady_clock::time_point end) const {
    pollfd both[] = {{.fd = descriptor, .events = POLLIN, .revents = 0},
                     {.fd = event_, .events = POLLIN, .revents = 0}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - steady_clock::now());
    poll(both, 2, std::max(0, static_cast<int>(left.count())));
  }

 private:
  const int event_;
  // The last member: it uses the other.
  const std::stop_callback<std::function<void()>> on_stop_;
};

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

struct ControlSocket::Answer {
  Packet packet;
  // The sentence of a refusal.
  std::string message;
};

// An answer as it arrives.
struct ControlSocket::Bytes {
  Packet packet;
  char message[kMessageBytes] = {};
  ssize_t count = 0;  // below 0: errno

  bool IsAnswer() const {
    return count >= static_cast<ssize_t>(sizeof(Packet)) &&
           std::memcmp(packet.magic, kMagic, sizeof(kMagic)) == 0;
  }
  std::string Message() const {
    return {message, static_cast<size_t>(count) - sizeof(Packet)};
  }
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
  // Connecting does not wait either: EAGAIN means that the server accepts
  // nothing.
  socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) return Unavailable("socket", errno);
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    return Unavailable("cannot connect", errno);
  }
  return {};
}

bool ControlSocket::IsOpen() {
  const std::lock_guard lock(mutex_);
  char byte = 0;
  const ssize_t count =
      socket_ < 0 ? 0 : recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  // The server sends nothing but answers, except before it disconnects.
  if (count >= 0) return count > 0 && !due_.empty();
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

bool ControlSocket::IsLate() {
  const std::lock_guard lock(mutex_);
  const bool is_awaited = std::any_of(due_.begin(), due_.end(),
                                      [](Due due) { return due.awaited; });
  std::optional<Answer> none;
  // A connection that has ended is not late.
  if (late_ && !is_awaited && !Read(&none).ok()) late_ = false;
  return late_;
}

Status ControlSocket::Register(const Region& region, const Bounds& bounds,
                               std::string* handle) {
  Packet packet;
  packet.kind = kRegister;
  packet.access = static_cast<uint32_t>(region.access());
  packet.size = region.size();
  return Register(&packet, sizeof(packet), region.descriptor(), bounds, handle);
}

Status ControlSocket::Register(const DeviceAllocation& allocation,
                               Access access, const Bounds& bounds,
                               std::string* handle) {
  static_assert(sizeof(DevicePacket) == 120, "as proto/README.md has it");
  DevicePacket packet;
  packet.head.kind = kRegisterDevice;
  packet.head.access = static_cast<uint32_t>(access);
  packet.head.size = allocation.size;
  packet.device = allocation.device;
  packet.handle = allocation.handle;
  return Register(&packet, sizeof(packet), kNoDescriptor, bounds, handle);
}

Status ControlSocket::Register(const void* packet, size_t size, int descriptor,
                               const Bounds& bounds, std::string* handle) {
  Packet answer;
  Status status =
      Exchange(packet, size, descriptor, /*registers=*/true, bounds, &answer);
  if (status.ok()) handle->assign(answer.handle, kHandleBytes);
  return status;
}

bool ControlSocket::Release(const std::string& handle) {
  const std::lock_guard lock(mutex_);
  return handle.size() == kHandleBytes && SendRelease(handle.data());
}

bool ControlSocket::SendRelease(const char* handle) {
  Packet packet;
  packet.kind = kRelease;
  std::memcpy(packet.handle, handle, kHandleBytes);
  return Send(&packet, sizeof(packet), kNoDescriptor,
              {.registers = false, .awaited = false})
      .ok();
}

Status ControlSocket::Release(const std::string& handle, const Bounds& bounds,
                              bool* in_use) {
  Packet packet;
  packet.kind = kRelease;
  std::memcpy(packet.handle, handle.data(),
              std::min(handle.size(), kHandleBytes));
  Packet answer;
  Status status = Exchange(&packet, sizeof(packet), kNoDescriptor,
                           /*registers=*/false, bounds, &answer);
  // After a refusal the memory is released already, and so it is after the
  // connection's end. A server that does not answer may be frozen.
  *in_use = status.ok() ? answer.size != 0 : IsLate();
  return status;
}

Status ControlSocket::Send(const void* packet, size_t size, int descriptor,
                           Due due) {
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
  if (count < 0) {
    const int error = errno;
    // A server that reads nothing has packets to answer.
    late_ = late_ || error == EAGAIN;
    if (error != EPIPE && error != ECONNRESET) {
      return Unavailable("cannot send", error);
    }
    // A server that refuses a peer sends the reason before it closes.
    const Bytes last = due_.empty() ? Receive() : Bytes{};
    if (!last.IsAnswer() || last.packet.kind == 0) {
      return Unavailable("cannot send", error);
    }
    return {.code = static_cast<StatusCode>(last.packet.kind),
            .message = last.Message()};
  }
  due_.push_back(due);
  return {};
}

ControlSocket::Bytes ControlSocket::Receive() {
  Bytes bytes;
  const auto receive = [&] {
    do {
      bytes.count = recv(socket_, &bytes, offsetof(Bytes, count), 0);
    } while (bytes.count < 0 && errno == EINTR);
  };
  receive();
  // It precedes what the server sent last, if that left a packet unread.
  if (bytes.count < 0 && errno == ECONNRESET) receive();
  return bytes;
}

Status ControlSocket::Read(std::optional<Answer>* awaited) {
  while (!due_.empty() && !*awaited) {
    const Bytes bytes = Receive();
    if (bytes.count < 0 && errno == EAGAIN) return {};
    if (bytes.count < 0) return Unavailable("no answer", errno);
    if (!bytes.IsAnswer()) return Unavailable("no answer", ECONNRESET);
    const Due due = due_.front();
    due_.pop_front();
    late_ = late_ && !due_.empty();
    if (due.awaited) {
      *awaited = {bytes.packet, bytes.Message()};
    } else if (due.registers && bytes.packet.kind == 0 &&
               !SendRelease(bytes.packet.handle)) {
      return Unavailable("cannot send", EAGAIN);
    }
  }
  return {};
}

Status ControlSocket::Exchange(const void* packet, size_t size, int descriptor,
                               bool registers, const Bounds& bounds,
                               Packet* answered) {
  const auto end = std::min(bounds.deadline, steady_clock::now() + kPatience);
  const Waker waker(bounds.stop);
  std::optional<Answer> answer;
  std::unique_lock lock(mutex_);
  Status status = Read(&answer);
  if (status.ok()) {
    status = Send(packet, size, descriptor,
                  {.registers = registers, .awaited = true});
  }
  while (status.ok() && !answer) {
    const bool is_stopped = bounds.stop.stop_requested();
    const bool is_over = steady_clock::now() >= end;
    // Once more after the time is over: this thread may have slept.
    status = Read(&answer);
    if (!status.ok() || answer) break;
    if (is_stopped || is_over) {
      for (Due& due : due_) due.awaited = false;
      late_ = late_ || is_over;
      if (is_stopped) {
        return {.code = StatusCode::kCancelled,
                .message = "a stop was requested"};
      }
      if (end == bounds.deadline) {
        return {.code = StatusCode::kDeadlineExceeded,
                .message =
                    "shared memory: the server has not answered a packet "
                    "before the call's deadline"};
      }
      return Unavailable("no answer", ETIMEDOUT);
    }
    lock.unlock();
    waker.Wait(socket_, end);
    lock.lock();
  }
  if (!status.ok()) return status;
  if (answer->packet.kind != 0) {
    return {.code = static_cast<StatusCode>(answer->packet.kind),
            .message = std::move(answer->message)};
  }
  *answered = answer->packet;
  return {};
}

}  // namespace counterweight::client
