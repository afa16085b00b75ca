// A client's connection to the shared-memory socket.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONNECTION_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONNECTION_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/corrector.h"
#include "server/base/file_descriptor.h"
#include "server/call/admission.h"
#include "server/log/request_log.h"
#include "server/shared_memory/closer.h"
#include "server/shared_memory/control.h"
#include "server/shared_memory/mapped_region.h"
#include "server/shared_memory/packet_socket.h"
#include "server/shared_memory/registry.h"
#include "server/shared_memory/warning_limit.h"

namespace counterweight::server {

// State shared by all connections; the pointers outlive them.
struct ConnectionContext {
  int64_t max_bytes = 0;    // of one connection's regions on the host
  int64_t max_regions = 0;  // of one connection
  // Opens device memory and pins the host's; null: neither.
  kernels::Corrector* backend = nullptr;
  RegionRegistry* registry = nullptr;
  Admission* admission = nullptr;
  RequestLog* log = nullptr;
  std::shared_ptr<RegionCounts> counts;
  std::atomic<int64_t>* errors = nullptr;
  WarningLimit* warnings = nullptr;  // of refusals
  Closer* closer = nullptr;
  std::function<std::chrono::steady_clock::time_point()> now =
      std::chrono::steady_clock::now;
};

// Owns its handles, which end with it. For one thread.
class Connection {
 public:
  // REQUIRES: `context` outlives this.
  Connection(FileDescriptor socket, const ConnectionContext& context);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  int socket() const { return socket_.get(); }

  // Takes and answers one packet, if there is one. False if the connection is
  // over: the peer left, broke the protocol or does not read its answers.
  bool TakePacket();

  // True while a file that it sent is being closed; meanwhile it is not read,
  // so that it has at most one such thread.
  bool IsClosing() const { return closing_ != nullptr && !*closing_; }
  // True if it has no region that it or a request could use.
  bool IsIdle() const;
  // Time of the connection or of its last packet.
  std::chrono::steady_clock::time_point last_used() const { return last_used_; }

 private:
  // The answer, and whether the connection ends with it.
  struct Reply {
    std::string packet;
    bool ends = false;
  };

  Reply Handle(const Packet& packet);
  Reply Refused(const Refusal& refusal, bool ends = false);
  Reply Register(const ControlRequest& request, const Packet& packet);
  Reply RegisterDevice(const ControlRequest& request, const Packet& packet);
  // Gives the region a handle; it takes `host_bytes` of max_bytes.
  Reply Add(std::shared_ptr<const Region> region, int64_t host_bytes);
  Reply Release(const RegionHandle& handle);
  // Number of released device regions that requests still use.
  int64_t HeldAfterRelease() const;
  // Returns why a region with so many host bytes is impossible.
  Refusal LimitProblem(uint64_t host_bytes) const;

  struct Owned {
    int64_t host_bytes;
    std::weak_ptr<const void> open;  // Region::open()
  };

  // Closed last: a client that sees the end finds everything released.
  FileDescriptor socket_;
  const ConnectionContext& context_;
  std::map<RegionHandle, Owned> regions_;  // of this connection
  int64_t bytes_ = 0;                      // of these on the host
  // Region::open() of released device regions: expired once no request uses
  // them.
  std::map<RegionHandle, std::weak_ptr<const void>> released_;
  std::chrono::steady_clock::time_point last_used_;
  // Files that it sent and that are not memory: not closed yet, and being
  // closed (null: none).
  std::vector<FileDescriptor> other_files_;
  Closer::Done closing_;
};

// Counts a refusal and logs it, as a warning if the limit permits; returns its
// answer.
std::string Refuse(const Refusal& refusal, const ConnectionContext& context);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONNECTION_H_
