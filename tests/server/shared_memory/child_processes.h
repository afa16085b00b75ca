// Clients in processes of their own.
#ifndef COUNTERWEIGHT_TESTS_SERVER_SHARED_MEMORY_CHILD_PROCESSES_H_
#define COUNTERWEIGHT_TESTS_SERVER_SHARED_MEMORY_CHILD_PROCESSES_H_

#include <sys/types.h>

#include <string>

#include "server/base/file_descriptor.h"

namespace counterweight::server {

// Runs a function in a new process for each call. Made before the test's first
// thread: its own process is forked then, and forks the others. A fork of a
// process with threads may wait forever for a lock of the allocator.
class ChildProcesses {
 public:
  // `body` returns the exit status of its process.
  using Body = int (*)(const std::string& path, int argument);

  // Throws if the kernel refuses.
  explicit ChildProcesses(Body body);
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;
  ~ChildProcesses();

  // Returns what waitpid says of a process that ran body(path, argument); -1 if
  // it has not ended after two minutes. `path` has up to 107 bytes.
  int Run(const std::string& path, int argument);

 private:
  FileDescriptor socket_;
  pid_t process_ = -1;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_SHARED_MEMORY_CHILD_PROCESSES_H_
