#include "client/cpp/transport/connections.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <compare>
#include <utility>

#include "grpc/support/sync.h"

namespace counterweight::client {
namespace {

// A connection in use takes bytes again within this time.
constexpr int kMomentMilliseconds = 100;

// The argument of grpc::ChannelArguments::SetSocketMutator. gRPC's header,
// src/core/lib/iomgr/socket_mutator.h, is not installed; the layout is that of
// gRPC 1.51, which later sources keep. gRPC calls `mutate` for each socket
// before it connects it.
struct Mutator {
  struct Functions {
    bool (*mutate)(int fd, Mutator* mutator);
    int (*compare)(Mutator* a, Mutator* b);
    void (*destroy)(Mutator* mutator);
    // With the socket's use, in place of `mutate`; null: none.
    bool (*mutate_for_use)(const void* socket, Mutator* mutator);
  };

  const Functions* functions;
  gpr_refcount references;
  std::shared_ptr<Connections> connections;
};

constexpr Mutator::Functions kFunctions = {
    .mutate =
        [](int fd, Mutator* mutator) {
          mutator->connections->Add(fd);
          return true;
        },
    .compare =
        [](Mutator* a, Mutator* b) {
          const auto order = std::compare_three_way()(a, b);
          return std::is_lt(order) ? -1 : std::is_gt(order) ? 1 : 0;
        },
    .destroy = [](Mutator* mutator) { delete mutator; },
    .mutate_for_use = nullptr};

ino_t InodeOf(int fd) {
  struct stat about {};
  return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

bool IsStuck(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  // One that is not connected waits for something else.
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    return false;
  }
  pollfd writable = {.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&writable, 1, kMomentMilliseconds) == 0;
}

}  // namespace

void Connections::Watch(const std::shared_ptr<Connections>& connections,
                        grpc::ChannelArguments* arguments) {
  auto mutator = std::make_unique<Mutator>();
  mutator->functions = &kFunctions;
  mutator->connections = connections;
  gpr_ref_init(&mutator->references, 1);
  arguments->SetSocketMutator(
      reinterpret_cast<grpc_socket_mutator*>(mutator.release()));
}

void Connections::Add(int fd) {
  const std::lock_guard lock(mutex_);
  std::erase_if(sockets_, [](const Socket& socket) {
    return InodeOf(socket.fd) != socket.inode;
  });
  sockets_.push_back({fd, InodeOf(fd)});
}

void Connections::CutStuck() {
  std::vector<Socket> sockets;
  {
    const std::lock_guard lock(mutex_);
    sockets = sockets_;
  }
  for (const Socket& socket : sockets) {
    // gRPC may close its descriptor at any time; this one stays the socket's.
    const int own = fcntl(socket.fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) continue;
    if (InodeOf(own) == socket.inode && IsStuck(own)) shutdown(own, SHUT_RDWR);
    close(own);
  }
}

}  // namespace counterweight::client
