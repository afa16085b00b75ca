// One client's end of the shared-memory socket.
#ifndef COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONNECTION_H_
#define COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONNECTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

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
  int64_t max_bytes = 0;    // of one connection's regions
  int64_t max_regions = 0;  // of one connection
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
  Reply Release(const RegionHandle& handle);
  Refusal LimitProblem(uint64_t size) const;

  // Closed last: a client that sees the end finds everything gone.
  const FileDescriptor socket_;
  const ConnectionContext& context_;
  std::map<RegionHandle, int64_t>
      sizes_;          // bytes, of this connection's regions
  int64_t bytes_ = 0;  // their sum
  bool warned_ = false;
};

// Counts and logs a refusal; returns the answer that says so.
std::string Refuse(const Refusal& refusal, spdlog::level::level_enum level,
                   const ConnectionContext& context);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_SHARED_MEMORY_CONNECTION_H_
