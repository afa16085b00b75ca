// Closes descriptors of clients' files.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_CLOSER_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_CLOSER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/base/file_descriptor.h"

namespace counterweight::server {

// close() waits for the file system of a FUSE file, and for the peer of a
// lingering socket, so threads call it. Closing a socket also closes files that
// were sent over it and not received. Thread-safe.
class Closer {
 public:
  // Longest wait of the destructor.
  static constexpr std::chrono::milliseconds kPatience{1000};

  // True once all descriptors of a Close are closed.
  using Done = std::shared_ptr<const std::atomic<bool>>;

  Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;
  // Waits for pending closes, and leaves longer ones to their threads.
  ~Closer();

  // Closes in this order on a new thread, or here if none can start. The
  // packets of `connection`, a socket of ours, are read first, so that its peer
  // can read the last answer.
  Done Close(std::vector<FileDescriptor> descriptors,
             FileDescriptor connection = FileDescriptor());

  // Number of unfinished calls of Close.
  int64_t count() const;
  // An eventfd that is readable after any of them ended until it is read; not
  // open if the system has none.
  const FileDescriptor& changed() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_CLOSER_H_
