#include "server/shared_memory/listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "server/unix_socket.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An accept that fails for want of descriptors or memory leaves its connection
// in the queue, where it would wake us at once.
constexpr milliseconds kAcceptPause{100};

// How the socket's path is given, for messages at start.
constexpr std::string_view kFlag = "--shared_memory_socket=";

// Where a poll's entries begin. The listening socket comes before the
// connections: whoever closes one connection and opens the next has then been
// seen to close when the next is seen.
constexpr size_t kStop = 0;
constexpr size_t kListening = 1;
constexpr size_t kConnections = 2;

}  // namespace

std::unique_ptr<SharedMemoryListener> SharedMemoryListener::Start(
    const Options& options, Admission* admission, RequestLog* log,
    std::string* error) {
  if (!CheckSocketPath(kFlag, options.path, error)) return nullptr;
  // What is there now is a socket that nobody listens on.
  unlink(options.path.c_str());
  std::unique_ptr<SharedMemoryListener> listener(
      new SharedMemoryListener(options, admission, log));
  std::string cause;
  listener->listening_ = ListenForPackets(options.path, &cause);
  if (cause.empty()) {
    listener->file_ = IdOf(options.path);
    listener->stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!listener->stop_.is_open()) {
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
               .errors = &errors_} {}

SharedMemoryListener::~SharedMemoryListener() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  connections_.clear();
  UnlinkSocket();
}

void SharedMemoryListener::UnlinkSocket() const {
  // Somebody may have removed the file, and another server made its own.
  if (listening_.is_open() && IdOf(options_.path) == file_) {
    unlink(options_.path.c_str());
  }
}

SharedMemoryListener::FileId SharedMemoryListener::IdOf(
    const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino};
}

void SharedMemoryListener::Run() {
  while (Serve()) {
  }
}

bool SharedMemoryListener::Serve() {
  const bool paused = accept_again_ && steady_clock::now() < *accept_again_;
  std::vector<pollfd> polls = {
      {stop_.get(), POLLIN, 0},
      {paused ? -1 : listening_.get(), POLLIN, 0},
  };
  for (const auto& connection : connections_) {
    polls.push_back({connection->socket(), POLLIN, 0});
  }
  const int timeout = paused ? static_cast<int>(kAcceptPause.count()) : -1;
  if (poll(polls.data(), polls.size(), timeout) < 0) {
    // Without memory for poll there is nothing better to do than to wait.
    if (errno != EINTR) std::this_thread::sleep_for(kAcceptPause);
    return true;
  }
  if (polls[kStop].revents != 0) return false;
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (polls[kConnections + i].revents == 0) continue;
    if (!connections_[i]->TakePacket()) connections_[i].reset();
  }
  std::erase(connections_, nullptr);
  if (polls[kListening].revents != 0) Accept();
  return true;
}

void SharedMemoryListener::Accept() {
  FileDescriptor socket(
      accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket.is_open()) {
    // The first three: whoever came has left.
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    ReportFailedAccept(errno);
    return;
  }
  accept_again_.reset();
  const Refusal refusal = ConnectionProblem(socket.get());
  if (refusal.code != grpc::StatusCode::OK) {
    SendPacket(socket.get(), Refuse(refusal, spdlog::level::warn, context_));
    return;
  }
  connections_.push_back(
      std::make_unique<Connection>(std::move(socket), context_));
}

void SharedMemoryListener::ReportFailedAccept(int cause) {
  errors_ += 1;
  // One line, however long it lasts.
  if (!accept_again_) {
    context_.log->Event(
        spdlog::level::warn, "shared_memory_accept_failed",
        JsonObject().Add("error", std::generic_category().message(cause)));
  }
  accept_again_ = steady_clock::now() + kAcceptPause;
}

Refusal SharedMemoryListener::ConnectionProblem(int socket) const {
  if (options_.peer_user_id(socket) != geteuid()) {
    return {grpc::StatusCode::PERMISSION_DENIED,
            "the server shares memory with its own user's processes only"};
  }
  if (static_cast<int64_t>(connections_.size()) >= options_.max_connections) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            fmt::format("the server has {} shared-memory connections already, "
                        "the most that it takes",
                        options_.max_connections)};
  }
  return {};
}

}  // namespace counterweight::server
