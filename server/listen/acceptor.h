// gRPC's listeners and accepted connections.
#ifndef COUNTERWEIGHT_SERVER_LISTEN_ACCEPTOR_H_
#define COUNTERWEIGHT_SERVER_LISTEN_ACCEPTOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "server/base/file_descriptor.h"
#include "server/base/listen_address.h"
#include "server/base/unix_socket.h"
#include "server/listen/connection_table.h"
#include "server/listen/flooders.h"
#include "server/log/report_pause.h"
#include "server/log/request_log.h"

namespace counterweight::server {

// Accepts connections on one thread and passes them on. gRPC 1.51 closes a
// listener permanently when one accept fails for lack of descriptors
// (CVE-2023-4785); this one waits and retries, and keeps descriptors free for
// the process's own files.
class Acceptor {
 public:
  struct Options {
    std::vector<ListenAddress> listen;
    // Limit for all listeners together; fewer if the process may not open so
    // many files: a connection needs two.
    int64_t max_connections = 0;
    // The mode of the files of Unix sockets.
    mode_t socket_mode = 0600;
    // Loopback addresses are refused like others if they flood the server. They
    // are all programs' of this machine, and all clients' of a mesh's sidecar.
    bool refuses_loopback = false;
  };

  // Takes the connected, non-blocking `fd`, and owns it.
  using Handle = std::function<void(int listener, int fd)>;

  // Binds and listens. Null, and *error a sentence that names the address, if
  // that fails. *log outlives this.
  static std::unique_ptr<Acceptor> Bind(const Options& options, RequestLog* log,
                                        std::string* error);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Accepts from now on. `on_lost` is called, once, if a listener can accept no
  // more. REQUIRES: called once.
  void Start(Handle handle, std::function<void()> on_lost);

  // Closes a TCP connection that floods the server, named as
  // grpc::ServerContext::peer() does; does nothing if there is none. An address
  // with several of them is refused for a while. Thread-safe.
  void Close(const std::string& peer);

  // Accepts no more and closes the listeners; connections stay. Idempotent.
  void Stop();

  // Sends nothing more to any client: each sees the end of its connection, and
  // its calls there fail as UNAVAILABLE. REQUIRES: Stop has returned.
  void EndConnections() { table_.EndWriting(); }

  // Removes the Unix sockets' files: for an exit without destruction.
  void UnlinkSockets() const;

  // Addresses as clients write them, with the chosen ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Open connections; those refused because there were too many or because
  // their address floods the server, and failed accepts.
  int64_t connections() const { return table_.size(); }
  int64_t refused() const { return refused_; }

 private:
  struct Listener {
    FileDescriptor socket;
    std::optional<SocketFile> file;  // of a Unix socket
  };

  Acceptor(const Options& options, RequestLog* log);

  bool Listen(const ListenAddress& address, mode_t socket_mode,
              std::string* error);
  void Run();
  // Closes the connections of Close().
  void CloseRequested();
  // Accepts pending connections; false if the listener is lost.
  bool Accept(const Listener& listener);
  // Counts failures, and reports one.
  void ReportFailure(const std::string& cause);
  // Logs each event at most every ReportPause::kPause.
  void Report(std::string_view event, const nlohmann::json& fields);

  RequestLog* const log_;
  const bool refuses_loopback_;
  ConnectionTable table_;
  std::atomic<int64_t> refused_ = 0;
  std::vector<Listener> listeners_;
  std::vector<std::string> addresses_;
  FileDescriptor stop_;  // an eventfd, readable when it is time to end
  FileDescriptor wake_;  // an eventfd, readable when to_close_ has something
  std::mutex close_mutex_;
  std::vector<std::string> to_close_;  // guarded by close_mutex_

  // Used by thread_ alone.
  Handle handle_;
  std::function<void()> on_lost_;
  std::chrono::steady_clock::time_point accept_again_;
  std::map<std::string, ReportPause> reports_;  // by event
  Flooders flooders_;

  std::thread thread_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LISTEN_ACCEPTOR_H_
