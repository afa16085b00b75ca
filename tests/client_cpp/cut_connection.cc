#include "tests/client_cpp/cut_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace counterweight::client {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Finds a client's first call in what it sends, RFC 9113: a preface, then
// frames that begin with their payload's length and their type.
class FirstCall {
 public:
  // Returns how many of the next `count` bytes precede the call's HEADERS
  // frame; less than `count` only if it begins in them. Up to 3 bytes of its
  // head may have counted before.
  size_t BytesBefore(const char* data, size_t count) {
    for (size_t i = 0; i < count;) {
      if (skip_ > 0) {
        const size_t step = std::min(skip_, count - i);
        skip_ -= step;
        i += step;
        continue;
      }
      head_.push_back(static_cast<uint8_t>(data[i++]));
      if (head_.size() == kTypeEnd && head_.back() == kHeaders) {
        return i - std::min(i, kTypeEnd);
      }
      if (head_.size() < kHeadBytes) continue;
      skip_ = size_t{head_[0]} << 16 | size_t{head_[1]} << 8 | head_[2];
      head_.clear();
    }
    return count;
  }

 private:
  static constexpr size_t kPrefaceBytes = 24;
  static constexpr size_t kHeadBytes = 9;
  static constexpr size_t kTypeEnd = 4;
  static constexpr uint8_t kHeaders = 1;

  size_t skip_ = kPrefaceBytes;
  std::vector<uint8_t> head_;
};

// Breaks a connection without closing its descriptor.
void Reset(int fd) {
  const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(fd, &none, sizeof(none));
}

// Passes at most `bytes` bytes on, then ends both connections.
void Pass(int from, int to, size_t bytes,
          const std::function<void(const char*, size_t)>& watch,
          CutConnection::End end) {
  const bool until_call = bytes == CutConnection::kUntilTheFirstCall;
  FirstCall call;
  char buffer[16384];
  while (bytes > 0) {
    ssize_t count = recv(from, buffer, std::min(bytes, sizeof(buffer)), 0);
    if (count <= 0) break;
    if (until_call) {
      const auto all = static_cast<size_t>(count);
      const size_t before = call.BytesBefore(buffer, all);
      count = static_cast<ssize_t>(before);
      if (before < all) bytes = before;
    }
    if (watch) watch(buffer, static_cast<size_t>(count));
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t step = send(
          to, buffer + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
      if (step <= 0) break;
      sent += step;
    }
    bytes -= static_cast<size_t>(count);
  }
  if (bytes == 0 && end == CutConnection::End::kFreeze) return;
  // A reset, as when a process dies: a socket that is only shut down still
  // takes bytes, and a sender with a full buffer would wait for its reader.
  if (bytes == 0) Reset(from);
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

}  // namespace

CutConnection::CutConnection(const std::string& server, size_t bytes_up,
                             size_t bytes_down, Watch watch, End end,
                             const std::string& path)
    : server_(server) {
  if (path.empty()) {
    ListenOnLoopback();
  } else {
    ListenOn(path);
  }
  acceptor_ =
      std::jthread([=, this] { Accept(bytes_up, bytes_down, watch, end); });
}

void CutConnection::ListenOnLoopback() {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_, 8) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) !=
          0) {
    throw std::runtime_error("cannot listen");
  }
  target_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

void CutConnection::ListenOn(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    throw std::runtime_error(path + " is too long for a socket");
  }
  path.copy(address.sun_path, path.size());
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
          0 ||
      listen(listener_, 8) != 0) {
    throw std::runtime_error("cannot listen on " + path);
  }
  target_ = "unix:" + path;
}

CutConnection::~CutConnection() {
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  for (const int fd : sockets_) shutdown(fd, SHUT_RDWR);
  passers_.clear();
  for (const int fd : sockets_) close(fd);
  close(listener_);
}

void CutConnection::Accept(size_t bytes_up, size_t bytes_down, Watch watch,
                           End end) {
  const sockaddr_in address =
      Loopback(std::stoi(server_.substr(server_.rfind(':') + 1)));
  for (;;) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int up = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockets_.push_back(client);
    sockets_.push_back(up);
    if (connect(up, reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) != 0) {
      shutdown(client, SHUT_RDWR);
      continue;
    }
    passers_.emplace_back([=] { Pass(client, up, bytes_up, watch.up, end); });
    passers_.emplace_back(
        [=] { Pass(up, client, bytes_down, watch.down, end); });
    watch = {};
    bytes_up = SIZE_MAX;
    bytes_down = SIZE_MAX;
  }
}

}  // namespace counterweight::client
