// A program as a child process.
#ifndef COUNTERWEIGHT_TESTS_CLIENT_CPP_PROCESS_H_
#define COUNTERWEIGHT_TESTS_CLIENT_CPP_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace counterweight::client {

// The destructor kills it if it still runs. Its stdin stays open until then.
class Process {
 public:
  // The program's path, then its arguments.
  explicit Process(std::vector<std::string> arguments);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The next line of stdout without its end; empty at the end of the output.
  std::string ReadLine();
  // Returns the rest of stdout.
  std::string ReadAll();
  void CloseInput();
  void Signal(int signal);
  // Stops the process until SIGCONT; returns when no thread of it runs anymore.
  void Freeze();
  pid_t pid() const { return pid_; }
  // Waits for the end and returns the exit code, or -1 if a signal killed it.
  int Wait();
  // REQUIRES: after Wait.
  std::string StandardError();

 private:
  pid_t pid_ = 0;
  int in_ = -1;
  int out_ = -1;
  int error_ = -1;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_TESTS_CLIENT_CPP_PROCESS_H_
