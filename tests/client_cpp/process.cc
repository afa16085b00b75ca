#include "tests/client_cpp/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

extern char** environ;

namespace counterweight::client {

Process::Process(std::vector<std::string> arguments) {
  int in[2] = {-1, -1};
  int out[2] = {-1, -1};
  // A memfd takes any amount of log without a reader.
  error_ = memfd_create("stderr", MFD_CLOEXEC);
  if (error_ < 0 || pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error_, STDERR_FILENO);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int failed =
      posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  in_ = in[1];
  out_ = out[0];
  if (failed != 0) throw std::runtime_error("cannot start " + arguments[0]);
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  CloseInput();
  close(out_);
  close(error_);
}

std::string Process::ReadLine() {
  std::string line;
  for (char c = 0; read(out_, &c, 1) == 1 && c != '\n';) line.push_back(c);
  return line;
}

std::string Process::ReadAll() {
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(out_, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

void Process::CloseInput() {
  if (in_ >= 0) close(in_);
  in_ = -1;
}

void Process::Signal(int signal) { kill(pid_, signal); }

void Process::Freeze() {
  Signal(SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);
}

int Process::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string Process::StandardError() {
  std::string text(static_cast<size_t>(lseek(error_, 0, SEEK_END)), '\0');
  const ssize_t size = pread(error_, text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return text;
}

}  // namespace counterweight::client
