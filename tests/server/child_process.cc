#include "tests/server/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

extern char** environ;

namespace counterweight::server {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  // A file takes any amount of log without a reader.
  error_path_ = "/tmp/counterweight-stderr-XXXXXX";
  const int error = mkstemp(error_path_.data());
  int out[2] = {-1, -1};
  if (error < 0 || pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error, STDERR_FILENO);
  std::string program = COUNTERWEIGHT_SERVER_BINARY;
  std::vector<std::string> copies = arguments;
  std::vector<char*> argv = {program.data()};
  for (std::string& copy : copies) argv.push_back(copy.data());
  argv.push_back(nullptr);
  const int failed = posix_spawn(&pid_, program.c_str(), &actions, nullptr,
                                 argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(error);
  out_ = out[0];
  if (failed != 0) throw std::runtime_error("cannot start " + program);
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_);
  unlink(error_path_.c_str());
}

std::string ChildProcess::ReadLine() {
  std::string line;
  for (char c = 0; read(out_, &c, 1) == 1 && c != '\n';) line.push_back(c);
  return line;
}

void ChildProcess::Signal(int signal) { kill(pid_, signal); }

int ChildProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string ChildProcess::StandardError() {
  std::ifstream file(error_path_);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace counterweight::server
