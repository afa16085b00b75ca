#include "server/shared_memory/listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/base/unix_socket.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An accept that fails for lack of descriptors or memory leaves its connection
// in the queue, which would wake the thread at once.
constexpr milliseconds kListenPause{100};

// The socket's flag, for messages at start.
constexpr std::string_view kFlag = "--shared_memory_socket=";

// Indices of a poll's entries. The listening socket precedes the connections:
// the close of a connection is then seen no later than a new connection of the
// same client.
constexpr size_t kStop = 0;
constexpr size_t kClosed = 1;
constexpr size_t kListening = 2;
constexpr size_t kFirstConnection = 3;

}  // namespace

std::unique_ptr<SharedMemoryListener> SharedMemoryListener::Start(
    const Options& options, Admission* admission, RequestLog* log,
    std::string* error) {
  if (!CheckSocketPath(kFlag, options.path, error)) return nullptr;
  // The existing file is a socket without a listener.
  unlink(options.path.c_str());
  std::unique_ptr<SharedMemoryListener> listener(
      new SharedMemoryListener(options, admission, log));
  std::string cause;
  listener->listening_ = ListenForPackets(options.path, &cause);
  if (cause.empty()) {
    listener->file_.emplace(options.path);
    listener->stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!listener->stop_.is_open() || !listener->closer_.changed().is_open() ||
        !SetSocketMode(options.path, options.socket_mode)) {
      cause = std::generic_category().message(errno);
    }
  }
  if (!cause.empty()) {
    *error =
        fmt::format("cannot listen on {}{}: {}", kFlag, options.path, cause);
    return nullptr;
  }
  listener->thread_ = std::thread(&SharedMemoryListener::Run, listener.get());
  return listener;
}

SharedMemoryListener::SharedMemoryListener(const Options& options,
                                           Admission* admission,
                                           RequestLog* log)
    : options_(options),
      context_{.max_bytes = options.max_bytes,
               .max_regions = options.max_regions,
               .backend = options.backend,
               .registry = &registry_,
               .admission = admission,
               .log = log,
               .counts = std::make_shared<RegionCounts>(),
               .errors = &errors_,
               .warnings = &warnings_,
               .closer = &closer_,
               .now = options.now} {}

SharedMemoryListener::~SharedMemoryListener() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  connections_.clear();
  UnlinkSocket();
  // Closes the connections that were not accepted too.
  std::vector<FileDescriptor> listening;
  listening.push_back(std::move(listening_));
  closer_.Close(std::move(listening));
}

void SharedMemoryListener::UnlinkSocket() const {
  if (file_) file_->Unlink();
}

void SharedMemoryListener::Run() {
  while (Serve()) {
  }
}

bool SharedMemoryListener::Serve() {
  std::vector<pollfd> polls = {
      {stop_.get(), POLLIN, 0},
      {closer_.changed().get(), POLLIN, 0},
      {CanAccept() ? listening_.get() : -1, POLLIN, 0},
  };
  for (const auto& connection : connections_) {
    // Without POLLIN the end of the connection is still reported.
    const short events = connection->IsClosing() ? 0 : POLLIN;
    polls.push_back({connection->socket(), events, 0});
  }
  if (poll(polls.data(), polls.size(), Timeout()) < 0) {
    // Without memory for poll the thread can only wait.
    if (errno != EINTR) std::this_thread::sleep_for(kListenPause);
    return true;
  }
  if (polls[kStop].revents != 0) return false;
  if (eventfd_t ended = 0; polls[kClosed].revents != 0) {
    eventfd_read(closer_.changed().get(), &ended);
  }
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (polls[kFirstConnection + i].revents == 0) continue;
    std::unique_ptr<Connection>& connection = connections_[i];
    if (connection->IsClosing() || !connection->TakePacket()) {
      connection.reset();
    }
  }
  std::erase(connections_, nullptr);
  EndIdle();
  if (polls[kListening].revents != 0) Accept();
  return true;
}

bool SharedMemoryListener::CanAccept() const {
  // A connection that ends while its files do not close leaves a thread; this
  // limits the number of such threads and of connections.
  return (!accept_again_ || options_.now() >= *accept_again_) &&
         closer_.count() <= options_.max_connections;
}

int SharedMemoryListener::Timeout() const {
  const auto now = options_.now();
  std::optional<steady_clock::time_point> wake;
  if (accept_again_ && now < *accept_again_) wake = *accept_again_;
  for (const auto& connection : connections_) {
    if (!connection->IsIdle()) continue;
    const auto end = connection->last_used() + options_.idle_limit;
    wake = std::min(wake.value_or(end), end);
  }
  if (!wake) return -1;
  return static_cast<int>(
      std::max(std::chrono::ceil<milliseconds>(*wake - now), milliseconds(0))
          .count());
}

void SharedMemoryListener::EndIdle() {
  const auto before = options_.now() - options_.idle_limit;
  std::erase_if(connections_, [&](const auto& connection) {
    return connection->IsIdle() && connection->last_used() <= before;
  });
}

bool SharedMemoryListener::EndIdlest() {
  auto idlest = connections_.end();
  for (auto i = connections_.begin(); i != connections_.end(); ++i) {
    if ((*i)->IsIdle() && (idlest == connections_.end() ||
                           (*i)->last_used() < (*idlest)->last_used())) {
      idlest = i;
    }
  }
  if (idlest == connections_.end()) return false;
  connections_.erase(idlest);
  return true;
}

void SharedMemoryListener::Accept() {
  FileDescriptor socket(
      accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.is_open()) {
    // In the first three cases the peer has already left.
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    ReportFailedAccept(errno);
    return;
  }
  accept_again_.reset();
  Refusal refusal = ConnectionProblem(socket.get());
  if (refusal.code == grpc::StatusCode::RESOURCE_EXHAUSTED && EndIdlest()) {
    refusal = {};
  }
  if (refusal.code != grpc::StatusCode::OK) {
    SendPacket(socket.get(), Refuse(refusal, context_));
    closer_.Close({}, std::move(socket));
    return;
  }
  connections_.push_back(
      std::make_unique<Connection>(std::move(socket), context_));
}

void SharedMemoryListener::ReportFailedAccept(int cause) {
  errors_ += 1;
  // One line for the whole period.
  if (!accept_again_) {
    context_.log->Event(spdlog::level::warn, "shared_memory_accept_failed",
                        {{"error", std::generic_category().message(cause)}});
  }
  accept_again_ = options_.now() + kListenPause;
}

Refusal SharedMemoryListener::ConnectionProblem(int socket) const {
  const std::optional<uid_t> user = options_.peer_user_id(socket);
  const std::vector<uid_t>& allowed = options_.user_ids;
  if (!user || (*user != geteuid() && std::find(allowed.begin(), allowed.end(),
                                                *user) == allowed.end())) {
    return {grpc::StatusCode::PERMISSION_DENIED,
            allowed.empty()
                ? "the server shares memory with its own user's processes only"
                : "the server shares memory with its own user's processes and "
                  "those of --shared_memory_uids only"};
  }
  if (static_cast<int64_t>(connections_.size()) >= options_.max_connections) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            fmt::format("the server has {} shared-memory connections in use, "
                        "the most that it takes",
                        options_.max_connections)};
  }
  return {};
}

}  // namespace counterweight::server
