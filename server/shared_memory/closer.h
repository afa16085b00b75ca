// Closes descriptors of files that clients made.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_CLOSER_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_CLOSER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/shared_memory/file_descriptor.h"

namespace counterweight::server {

// close() waits for the file system of a FUSE file, and for the peer of a
// socket that lingers; so it has a thread. A socket takes those with it that
// were sent over it and not received. Thread-safe.
class Closer {
 public:
  // The longest that the destructor waits.
  static constexpr std::chrono::milliseconds kPatience{1000};

  // True once all of a Close is closed.
  using Done = std::shared_ptr<const std::atomic<bool>>;

  Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;
  // Waits for what is being closed. What takes longer is left to its threads.
  ~Closer();

  // Closes in this order on a new thread, or here if there can be none. Of
  // `connection`, a socket of ours, what its peer sent is read first, so that
  // the peer can read what it was told last.
  Done Close(std::vector<FileDescriptor> descriptors,
             FileDescriptor connection = FileDescriptor());

  // Calls of Close whose threads are not done.
  int64_t count() const;
  // An eventfd that is readable after any of them ended, until it is read; not
  // open if the system has none.
  const FileDescriptor& changed() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_CLOSER_H_
