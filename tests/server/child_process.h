// counterweight-server as a child process.
#ifndef COUNTERWEIGHT_TESTS_SERVER_CHILD_PROCESS_H_
#define COUNTERWEIGHT_TESTS_SERVER_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace counterweight::server {

// The destructor kills it if it still runs.
class ChildProcess {
 public:
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Returns the next line of stdout without its end; empty at the end of the
  // output.
  std::string ReadLine();
  void Signal(int signal);
  // Waits for the end and returns the exit code, or -1 if a signal killed it.
  int Wait();
  // REQUIRES: after Wait.
  std::string StandardError();

 private:
  pid_t pid_ = 0;
  int out_ = -1;
  std::string error_path_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_CHILD_PROCESS_H_
