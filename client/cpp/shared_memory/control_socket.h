// Connection to the server's second socket, which registers memory.
#ifndef COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_CONTROL_SOCKET_H_
#define COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_CONTROL_SOCKET_H_

#include <string>

#include "client/cpp/device/allocation.h"
#include "client/cpp/shared_memory/region.h"
#include "client/cpp/status.h"

namespace counterweight::client {

// One connection; its registrations live as long as it is open. proto/README.md
// describes the packets. Not thread-safe. Waits at most 10 seconds for a
// packet; after kUnavailable the connection is unusable.
class ControlSocket {
 public:
  ControlSocket() = default;
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  // kUnavailable if no server listens there.
  Status Connect(const std::string& path);
  // True if the server has not closed it.
  bool IsOpen() const;
  // Returns the region's handle, 16 bytes, or the server's refusal.
  Status Register(const Region& region, std::string* handle);
  Status Register(const DeviceAllocation& allocation, Access access,
                  std::string* handle);
  Status Release(const std::string& handle);
  // Releases device memory. `in_use`: the server may still use it; call again,
  // unless the status is an error: the server does not answer.
  Status Release(const std::string& handle, bool* in_use);

 private:
  struct Packet;
  struct DevicePacket;
  // Sends a packet, with `descriptor` unless negative, and reads the answer.
  Status Exchange(const void* packet, size_t size, int descriptor,
                  Packet* answer);
  Status Register(const void* packet, size_t size, int descriptor,
                  std::string* handle);

  int socket_ = -1;
  // The last exchange got no answer in time.
  bool timed_out_ = false;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_CONTROL_SOCKET_H_
