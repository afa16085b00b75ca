#include "tests/server/shared_memory/child_processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace counterweight::server {
namespace {

// The arguments of a body; the path ends with a zero.
struct Call {
  int argument = 0;
  char path[108] = {};
};

// A body that hangs does not outlive its test.
void EndWithParent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

// Until the test's end of `socket` is closed.
[[noreturn]] void Serve(int socket, ChildProcesses::Body body) {
  Call call;
  while (recv(socket, &call, sizeof call, 0) == sizeof call) {
    const pid_t child = fork();
    if (child == 0) {
      EndWithParent();
      _exit(body(call.path, call.argument));
    }
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    if (send(socket, &status, sizeof status, MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);
}

}  // namespace

ChildProcesses::ChildProcesses(Body body) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  socket_ = FileDescriptor(ends[0]);
  const FileDescriptor theirs(ends[1]);
  const timeval patience{120, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience,
             sizeof patience);
  process_ = fork();
  if (process_ < 0) {
    throw std::system_error(errno, std::generic_category(), "fork");
  }
  if (process_ > 0) return;
  EndWithParent();
  close(ends[0]);
  Serve(ends[1], body);
}

ChildProcesses::~ChildProcesses() {
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

int ChildProcesses::Run(const std::string& path, int argument) {
  Call call{argument};
  path.copy(call.path, sizeof call.path - 1);
  int status = -1;
  if (send(socket_.get(), &call, sizeof call, MSG_NOSIGNAL) != sizeof call ||
      recv(socket_.get(), &status, sizeof status, 0) != sizeof status) {
    return -1;
  }
  return status;
}

}  // namespace counterweight::server
