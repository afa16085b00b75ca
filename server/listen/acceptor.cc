#include "server/listen/acceptor.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/base/tcp_socket.h"
#include "server/observe/web_server.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An accept that fails for want of descriptors or memory leaves its connection
// in the queue, where it would wake us at once.
constexpr milliseconds kAcceptPause{100};

// Descriptors for logs, shared memory, devices and the metrics port.
constexpr int64_t kReservedFiles = 128 + kMaxWebConnections;

// Accepts in a row before other listeners are served.
constexpr int kAcceptsInARow = 16;

int64_t MaxConnections(int64_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 ||
      files.rlim_cur == RLIM_INFINITY) {
    return wanted;
  }
  const auto available = static_cast<int64_t>(files.rlim_cur);
  const int64_t room = std::max(available - kReservedFiles, available / 2) / 2;
  return std::clamp<int64_t>(room, 1, wanted);
}

std::string ErrorText(int error) {
  return std::generic_category().message(error);
}

// The key by which connections are counted: the IP address, or "unix".
std::string PeerOf(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* ip = nullptr;
  if (address.ss_family == AF_INET) {
    ip = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.ss_family == AF_INET6) {
    ip = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  } else {
    return "unix";
  }
  inet_ntop(address.ss_family, ip, text.data(), text.size());
  return text.data();
}

// "10.0.0.7 40312", the name of a TCP connection; "" for others, which have
// none of their own. IPv4 in IPv6 is IPv4.
std::string NameOf(std::string ip, const std::string& port) {
  constexpr std::string_view kMapped = "::ffff:";
  if (ip.starts_with(kMapped) && ip.find('.') != std::string::npos) {
    ip.erase(0, kMapped.size());
  }
  return ip + " " + port;
}

std::string NameOf(const sockaddr_storage& address) {
  in_port_t port = 0;
  if (address.ss_family == AF_INET) {
    port = reinterpret_cast<const sockaddr_in&>(address).sin_port;
  } else if (address.ss_family == AF_INET6) {
    port = reinterpret_cast<const sockaddr_in6&>(address).sin6_port;
  } else {
    return "";
  }
  return NameOf(PeerOf(address), std::to_string(ntohs(port)));
}

// The same of gRPC's "ipv4:10.0.0.7:40312" or "ipv6:%5B::1%5D:40312"; newer
// versions write the brackets unescaped.
std::string NameOf(const std::string& peer) {
  const size_t ip = peer.find(':') + 1;
  const size_t port = peer.rfind(':');
  const bool is_tcp = peer.starts_with("ipv4:") || peer.starts_with("ipv6:");
  if (!is_tcp || port < ip) return "";
  std::string address = peer.substr(ip, port - ip);
  for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
    const size_t at = address.find(bracket);
    if (at != std::string::npos) address.erase(at, bracket.size());
  }
  return NameOf(address, peer.substr(port + 1));
}

bool IsLoopback(const std::string& ip) {
  // IPv4 in IPv6 is IPv4.
  const std::string address = NameOf(ip, "");
  return IsLocal(
      {.host = address.substr(0, address.find(' ')), .port = 0, .path = ""});
}

// Returns an empty string, or the end of a sentence about the failure.
std::string BindUnix(const std::string& path, mode_t mode,
                     FileDescriptor* listening) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  // The existing file is a socket without a server.
  unlink(path.c_str());
  *listening = FileDescriptor(
      socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Other users may not connect between bind and chmod.
  const PrivateFiles private_files;
  if (!listening->is_open() ||
      bind(listening->get(), reinterpret_cast<const sockaddr*>(&address),
           sizeof(address)) != 0 ||
      listen(listening->get(), SOMAXCONN) != 0 || !SetSocketMode(path, mode)) {
    return ErrorText(errno);
  }
  return "";
}

}  // namespace

std::unique_ptr<Acceptor> Acceptor::Bind(const Options& options,
                                         RequestLog* log, std::string* error) {
  std::unique_ptr<Acceptor> acceptor(new Acceptor(options, log));
  for (const ListenAddress& address : options.listen) {
    if (!acceptor->Listen(address, options.socket_mode, error)) return nullptr;
  }
  if (!acceptor->stop_.is_open() || !acceptor->wake_.is_open()) {
    *error = "cannot listen: " + ErrorText(errno);
    return nullptr;
  }
  return acceptor;
}

Acceptor::Acceptor(const Options& options, RequestLog* log)
    : log_(log),
      refuses_loopback_(options.refuses_loopback),
      table_(MaxConnections(options.max_connections)),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Acceptor::~Acceptor() { Stop(); }

bool Acceptor::Listen(const ListenAddress& address, mode_t socket_mode,
                      std::string* error) {
  Listener listener;
  ListenAddress bound = address;
  std::string cause;
  if (address.IsUnix()) {
    if (!CheckSocketPath("--listen=unix:", address.path, error)) return false;
    cause = BindUnix(address.path, socket_mode, &listener.socket);
    if (cause.empty()) listener.file.emplace(address.path);
  } else {
    cause = ListenTcp(address, &listener.socket, &bound.port);
  }
  if (!cause.empty()) {
    *error = fmt::format("cannot listen on --listen={}: {}", address.ToString(),
                         cause);
    return false;
  }
  listeners_.push_back(std::move(listener));
  addresses_.push_back(bound.ToString());
  return true;
}

void Acceptor::Start(Handle handle, std::function<void()> on_lost) {
  handle_ = std::move(handle);
  on_lost_ = std::move(on_lost);
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  UnlinkSockets();
  listeners_.clear();
}

void Acceptor::UnlinkSockets() const {
  for (const Listener& listener : listeners_) {
    if (listener.file) listener.file->Unlink();
  }
}

void Acceptor::Run() {
  constexpr size_t kFirstListener = 3;
  for (;;) {
    const auto now = steady_clock::now();
    const bool paused = now < accept_again_;
    std::vector<pollfd> polls = {{stop_.get(), POLLIN, 0},
                                 {table_.descriptor(), POLLIN, 0},
                                 {wake_.get(), POLLIN, 0}};
    for (const Listener& listener : listeners_) {
      polls.push_back({paused ? -1 : listener.socket.get(), POLLIN, 0});
    }
    const int timeout = paused ? static_cast<int>(kAcceptPause.count()) : -1;
    if (poll(polls.data(), polls.size(), timeout) < 0) {
      // Without memory for poll there is nothing better to do than to wait.
      if (errno != EINTR) std::this_thread::sleep_for(kAcceptPause);
      continue;
    }
    if (polls[0].revents != 0) return;
    // Runs first: a peer that closes one connection and opens the next has one.
    if (polls[1].revents != 0) table_.Clean();
    if (polls[2].revents != 0) CloseRequested();
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (polls[kFirstListener + i].revents == 0) continue;
      if (!Accept(listeners_[i])) return on_lost_();
    }
  }
}

void Acceptor::Close(const std::string& peer) {
  {
    const std::lock_guard<std::mutex> lock(close_mutex_);
    to_close_.push_back(peer);
  }
  eventfd_write(wake_.get(), 1);
}

void Acceptor::CloseRequested() {
  eventfd_t ignored = 0;
  eventfd_read(wake_.get(), &ignored);
  std::vector<std::string> peers;
  {
    const std::lock_guard<std::mutex> lock(close_mutex_);
    peers.swap(to_close_);
  }
  for (const std::string& peer : peers) {
    const std::optional<std::string> address = table_.Close(NameOf(peer));
    if (!address) continue;
    Report("connection_closed",
           {{"peer", peer}, {"reason", "it reset calls by the thousand"}});
    if (!refuses_loopback_ && IsLoopback(*address)) continue;
    if (!flooders_.Add(*address, steady_clock::now())) continue;
    Report("address_refused",
           {{"address", *address},
            {"seconds", Flooders::kRefusal.count()},
            {"reason", "its connections were closed again and again"}});
  }
}

bool Acceptor::Accept(const Listener& listener) {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int fd =
        accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&address),
                &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      switch (errno) {
        case EAGAIN:
          return true;
        case EBADF:
        case EINVAL:
        case ENOTSOCK:
        case EOPNOTSUPP:
          ReportFailure(ErrorText(errno));
          return false;
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
          ReportFailure(ErrorText(errno));
          accept_again_ = steady_clock::now() + kAcceptPause;
          return true;
        default:
          continue;  // the connection failed before it was accepted
      }
    }
    FileDescriptor connection(fd);
    if (flooders_.IsRefused(PeerOf(address), steady_clock::now())) {
      refused_ += 1;
      continue;
    }
    if (!table_.Add(fd, PeerOf(address), NameOf(address))) {
      ReportFailure("there are as many connections as may be");
      continue;
    }
    handle_(listener.socket.get(), connection.Release());
  }
  return true;
}

void Acceptor::ReportFailure(const std::string& cause) {
  refused_ += 1;
  Report("accept_failed", {{"error", cause}});
}

void Acceptor::Report(std::string_view event, const nlohmann::json& fields) {
  if (!reports_[std::string(event)].IsDue(steady_clock::now())) return;
  log_->Event(spdlog::level::warn, event, fields);
}

}  // namespace counterweight::server
