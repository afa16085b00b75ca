// The shared-memory socket, on which clients register memory.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_LISTENER_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_LISTENER_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/corrector.h"
#include "server/base/file_descriptor.h"
#include "server/base/unix_socket.h"
#include "server/call/admission.h"
#include "server/engine/region.h"
#include "server/log/request_log.h"
#include "server/shared_memory/connection.h"
#include "server/shared_memory/packet_socket.h"
#include "server/shared_memory/registry.h"

namespace counterweight::server {

// Listens from Start to destruction, on one thread for all connections, and
// finds registered regions. Thread-safe.
class SharedMemoryListener final : public Regions {
 public:
  struct Options {
    std::string path;  // of the socket; 1 to 107 bytes
    mode_t socket_mode = 0600;
    // Users with processes that may connect, beside this process' own.
    std::vector<uid_t> user_ids;
    // >= 0, of one connection's regions on the host together.
    int64_t max_bytes = 0;
    int64_t max_regions = 256;     // >= 0, of one connection
    int64_t max_connections = 64;  // >= 0
    // A connection without regions ends after this time without a packet.
    std::chrono::milliseconds idle_limit{30'000};
    // Opens memory on devices and pins the host's, and outlives the listener
    // and every region; null: neither.
    kernels::Corrector* backend = nullptr;
    // Peer credentials; injectable for tests.
    std::function<std::optional<uid_t>(int socket)> peer_user_id = PeerUserId;
    // The clock; injectable for tests.
    std::function<std::chrono::steady_clock::time_point()> now =
        std::chrono::steady_clock::now;
  };

  // Returns null, with *error a sentence that names the path, if the socket
  // cannot be created. *log and *admission outlive the listener; *admission
  // also outlives every region that was found. Call it only at start, see
  // PrivateFiles.
  static std::unique_ptr<SharedMemoryListener> Start(const Options& options,
                                                     Admission* admission,
                                                     RequestLog* log,
                                                     std::string* error);

  // Ends all connections and removes the socket's file. Found regions stay
  // until they are released.
  ~SharedMemoryListener() override;

  std::shared_ptr<const Region> Find(std::string_view handle) const override {
    return registry_.Find(handle);
  }

  // Removes the socket's file if it is still this listener's, for an exit
  // without destruction.
  void UnlinkSocket() const;

  // Regions that exist, and their bytes on the host and on devices.
  int64_t regions() const { return context_.counts->regions; }
  int64_t bytes() const { return context_.counts->bytes; }
  int64_t device_bytes() const { return context_.counts->device_bytes; }
  // Refused connections and requests, and failed accepts, since Start.
  int64_t errors() const { return errors_; }

 private:
  SharedMemoryListener(const Options& options, Admission* admission,
                       RequestLog* log);

  void Run();
  // Waits, then takes one packet of each connection that has one, and one new
  // connection: last, so that a client that reconnects at the limit finds its
  // former place. False when it is time to end.
  bool Serve();
  void Accept();
  void ReportFailedAccept(int cause);
  // False while accepts fail, or too many files wait to be closed.
  bool CanAccept() const;
  // Timeout of poll in ms.
  int Timeout() const;
  // Ends connections that were idle for too long.
  void EndIdle();
  // Ends the connection that is idle for longest. False if none is idle.
  bool EndIdlest();
  // Returns why the peer may not connect.
  Refusal ConnectionProblem(int socket) const;

  const Options options_;
  std::atomic<int64_t> errors_ = 0;
  RegionRegistry registry_;
  Closer closer_;
  WarningLimit warnings_;  // of thread_ alone
  const ConnectionContext context_;
  FileDescriptor listening_;
  FileDescriptor stop_;  // an eventfd, readable when it is time to end
  std::optional<SocketFile> file_;

  // Only thread_ accesses it.
  std::vector<std::unique_ptr<Connection>> connections_;
  // Time of the next accept while accepts fail.
  std::optional<std::chrono::steady_clock::time_point> accept_again_;

  std::thread thread_;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_LISTENER_H_
