// Connection to the server's second socket, which registers memory.
#ifndef COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_CONTROL_SOCKET_H_
#define COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_CONTROL_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "client/cpp/device/allocation.h"
#include "client/cpp/shared_memory/region.h"
#include "client/cpp/status.h"
#include "client/cpp/transport/bounds.h"

namespace counterweight::client {

// One connection; its registrations live as long as it is open. proto/README.md
// describes the packets. Thread-safe, but one thread at a time may use the
// functions that take bounds. Only they wait: until the bounds, and at most 10
// seconds. They then return kDeadlineExceeded, kCancelled or, after 10 seconds,
// kUnavailable, and the connection stays usable. After any other kUnavailable
// it is not.
class ControlSocket {
 public:
  ControlSocket() = default;
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  // kUnavailable if no server listens there, or it has no room.
  Status Connect(const std::string& path);
  // True if the server has not closed it.
  bool IsOpen();
  // True from the first packet that was not answered in time until all are
  // answered: the server may be frozen.
  bool IsLate();
  // Returns the region's handle, 16 bytes, or the server's refusal.
  Status Register(const Region& region, const Bounds& bounds,
                  std::string* handle);
  Status Register(const DeviceAllocation& allocation, Access access,
                  const Bounds& bounds, std::string* handle);
  // Releases a region. False: the packet could not be sent.
  bool Release(const std::string& handle);
  // Releases device memory. `in_use`: the server may still use it; call again,
  // unless the status is an error: the server does not answer.
  Status Release(const std::string& handle, const Bounds& bounds, bool* in_use);

 private:
  struct Packet;
  struct Bytes;
  struct DevicePacket;
  struct Answer;
  // A packet that is not answered yet.
  struct Due {
    bool registers;
    // False: no call waits for the answer.
    bool awaited;
  };
  // Sends a packet, with `descriptor` unless negative, and waits for its
  // answer.
  Status Exchange(const void* packet, size_t size, int descriptor,
                  bool registers, const Bounds& bounds, Packet* answer);
  Status Register(const void* packet, size_t size, int descriptor,
                  const Bounds& bounds, std::string* handle);
  // The functions below do not wait. REQUIRES: mutex_ is held.
  Status Send(const void* packet, size_t size, int descriptor, Due due);
  bool SendRelease(const char* handle);
  Bytes Receive();
  // Reads the answers that have arrived, up to the awaited one.
  Status Read(std::optional<Answer>* awaited);

  int socket_ = -1;
  std::mutex mutex_;
  // Guarded by mutex_; in the order of the packets, and so of the answers.
  std::deque<Due> due_;
  bool late_ = false;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_CONTROL_SOCKET_H_
