// A connection that breaks where the test wants it.
#ifndef COUNTERWEIGHT_TESTS_CLIENT_CPP_CUT_CONNECTION_H_
#define COUNTERWEIGHT_TESTS_CLIENT_CPP_CUT_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace counterweight::client {

// Passes bytes between clients and a server, both on loopback. The first
// connection is cut, both ways, when so many bytes went up or down; later ones
// are not.
class CutConnection {
 public:
  // For `bytes_up`: the connection is made, and is cut when the client has sent
  // a part of its first call's header; the server has not seen that call.
  static constexpr size_t kUntilTheFirstCall = SIZE_MAX - 1;

  // `server` is "127.0.0.1:port".
  CutConnection(const std::string& server, size_t bytes_up, size_t bytes_down);
  ~CutConnection();

  // Where clients connect.
  const std::string& target() const { return target_; }

 private:
  void Accept(size_t bytes_up, size_t bytes_down);

  const std::string server_;
  int listener_ = -1;
  std::string target_;
  // Of all connections, for the end.
  std::vector<int> sockets_;
  std::vector<std::jthread> passers_;
  std::jthread acceptor_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_TESTS_CLIENT_CPP_CUT_CONNECTION_H_
