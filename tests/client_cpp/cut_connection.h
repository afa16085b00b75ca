// A connection that breaks, or freezes, at a chosen byte.
#ifndef COUNTERWEIGHT_TESTS_CLIENT_CPP_CUT_CONNECTION_H_
#define COUNTERWEIGHT_TESTS_CLIENT_CPP_CUT_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace counterweight::client {

// Passes bytes between clients and a server, both on loopback. It cuts the
// first connection in both directions after so many bytes up or down, and no
// later one. A frozen connection stays open, and nothing reads it.
class CutConnection {
 public:
  // For `bytes_up`: cuts the connection when the client has sent a part of its
  // first call's header; the server has not seen that call.
  static constexpr size_t kUntilTheFirstCall = SIZE_MAX - 1;

  // Sees what the first connection passes, on two threads: one for each
  // direction.
  struct Watch {
    std::function<void(const char*data, size_t count)> up, down;
  };

  enum class End { kCut, kFreeze };

  // `server` is "127.0.0.1:port". Clients connect to a loopback port, or to a
  // Unix socket at `path`.
  CutConnection(const std::string& server, size_t bytes_up, size_t bytes_down,
                Watch watch = {}, End end = End::kCut,
                const std::string& path = "");
  ~CutConnection();

  // The address for clients.
  const std::string& target() const { return target_; }

 private:
  void ListenOnLoopback();
  void ListenOn(const std::string& path);
  void Accept(size_t bytes_up, size_t bytes_down, Watch watch, End end);

  const std::string server_;
  int listener_ = -1;
  std::string target_;
  // Sockets of all connections, for the destructor.
  std::vector<int> sockets_;
  std::vector<std::jthread> passers_;
  std::jthread acceptor_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_TESTS_CLIENT_CPP_CUT_CONNECTION_H_
