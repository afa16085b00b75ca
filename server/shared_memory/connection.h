// One client's end of the shared-memory socket.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONNECTION_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONNECTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kernels/corrector.h"
#include "server/admission.h"
#include "server/request_log.h"
#include "server/shared_memory/control.h"
#include "server/shared_memory/file_descriptor.h"
#include "server/shared_memory/mapped_region.h"
#include "server/shared_memory/packet_socket.h"
#include "server/shared_memory/registry.h"

namespace counterweight::server {

// What all connections share; the pointers outlive them.
struct ConnectionContext {
  int64_t max_bytes = 0;    // of one connection's regions on the host
  int64_t max_regions = 0;  // of one connection
  // Opens device memory; null: there is none.
  kernels::Corrector* backend = nullptr;
  RegionRegistry* registry = nullptr;
  Admission* admission = nullptr;
  RequestLog* log = nullptr;
  std::shared_ptr<RegionCounts> counts;
  std::atomic<int64_t>* errors = nullptr;
};

// Owns the handles that it gave out: they end with it. For one thread.
class Connection {
 public:
  // REQUIRES: `context` outlives this.
  Connection(FileDescriptor socket, const ConnectionContext& context);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  int socket() const { return socket_.get(); }

  // Takes and answers one packet, if one is there. False if the connection is
  // over: the peer left, broke the protocol or does not read its answers.
  bool TakePacket();

 private:
  // What to answer, and whether the connection ends with it.
  struct Reply {
    std::string packet;
    bool ends = false;
  };

  // Takes the packet's descriptors: they are closed before the answer is sent.
  Reply Handle(Packet packet);
  Reply Refused(const Refusal& refusal, bool ends = false);
  Reply Register(const ControlRequest& request, Packet packet);
  Reply RegisterDevice(const ControlRequest& request);
  // Gives the region a handle; it takes `host_bytes` of max_bytes.
  Reply Add(std::shared_ptr<const Region> region, int64_t host_bytes);
  Reply Release(const RegionHandle& handle);
  // Why a region with so many bytes on the host cannot be had.
  Refusal LimitProblem(uint64_t host_bytes) const;

  struct Owned {
    int64_t host_bytes;
    std::weak_ptr<const Region> region;
  };

  // Closed last: a client that sees the end finds everything gone.
  const FileDescriptor socket_;
  const ConnectionContext& context_;
  std::map<RegionHandle, Owned> regions_;  // of this connection
  int64_t bytes_ = 0;                      // of these on the host
  // Regions on devices that were released and that requests use still.
  std::map<RegionHandle, std::weak_ptr<const Region>> released_;
  bool warned_ = false;
};

// Counts and logs a refusal; returns the answer that says so.
std::string Refuse(const Refusal& refusal, spdlog::level::level_enum level,
                   const ConnectionContext& context);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONNECTION_H_
