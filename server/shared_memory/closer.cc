#include "server/shared_memory/closer.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace counterweight::server {

// Shared with the threads, which may outlive the Closer.
struct Closer::State {
  const FileDescriptor changed{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;  // guards the next two
  std::condition_variable ended;
  int64_t count = 0;
};

namespace {

constexpr int kMostUnread = 16;

struct Files {
  std::vector<FileDescriptor> descriptors;
  FileDescriptor connection;
};

void CloseNow(FileDescriptor descriptor) {
  // The kernel sends a socket's data after its close.
  const linger none{};
  setsockopt(descriptor.get(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

void CloseAll(Files* files) {
  for (FileDescriptor& descriptor : files->descriptors) {
    CloseNow(std::move(descriptor));
  }
  if (!files->connection.is_open()) return;
  // A peer with unread packets would see a reset instead of the last answer. It
  // may send more than this loop reads.
  for (int i = 0; i < kMostUnread; ++i) {
    char packet = 0;
    if (recv(files->connection.get(), &packet, 1, MSG_DONTWAIT) <= 0) break;
  }
  CloseNow(std::move(files->connection));
}

}  // namespace

Closer::Closer() : state_(std::make_shared<State>()) {}

Closer::~Closer() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->ended.wait_for(lock, kPatience, [&] { return state_->count == 0; });
}

Closer::Done Closer::Close(std::vector<FileDescriptor> descriptors,
                           FileDescriptor connection) {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  // Shared, because a thread that cannot start must not close them.
  const auto left = std::make_shared<Files>(
      Files{std::move(descriptors), std::move(connection)});
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->count += 1;
  }
  const auto close = [state = state_, done, left] {
    CloseAll(left.get());
    *done = true;
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->count -= 1;
    state->ended.notify_all();
    eventfd_write(state->changed.get(), 1);
  };
  try {
    std::thread(close).detach();
  } catch (const std::system_error&) {
    close();
  }
  return done;
}

int64_t Closer::count() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->count;
}

const FileDescriptor& Closer::changed() const { return state_->changed; }

}  // namespace counterweight::server
