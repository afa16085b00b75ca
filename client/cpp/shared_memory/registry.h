// Regions that a server has registered, and idle regions for later batches.
#ifndef COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_REGISTRY_H_
#define COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_REGISTRY_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/device/allocation.h"
#include "client/cpp/shared_memory/control_socket.h"
#include "client/cpp/shared_memory/region.h"
#include "client/cpp/status.h"
#include "client/cpp/transport/bounds.h"

namespace counterweight::client {

// Device memory with the server's access.
using DeviceRegion = std::pair<DeviceAllocation, Access>;

// Thread-safe. Only the functions with bounds or patience wait for the server,
// and hold up no other meanwhile. Create with std::make_shared: regions hold a
// weak pointer to it.
class Registry : public std::enable_shared_from_this<Registry> {
 public:
  // More than the server's time between two checks for an abandoned call.
  static constexpr std::chrono::milliseconds kPatience{10000};

  // Keeps idle regions of at most `pool_bytes` in total.
  explicit Registry(size_t pool_bytes) : pool_bytes_(pool_bytes) {}

  // Creates a region for the caller; Find finds it by address.
  Status Allocate(size_t bytes, Access access, std::shared_ptr<Region>* region);

  // The allocated region that holds all of [data, data + bytes); null if none.
  std::shared_ptr<Region> Find(const void* data, size_t bytes, Access access);

  // Takes a region of at least `bytes` for one batch, an idle one if possible.
  // Its content is undefined.
  Status Acquire(size_t bytes, Access access, std::shared_ptr<Region>* region);
  // Returns a region to the pool. The caller instead frees a region that the
  // server may still use.
  void Recycle(std::shared_ptr<Region> region);
  // Frees all idle regions: the server counts them as shared and may have room
  // without them. False if there was none.
  bool Trim();

  // Returns the region's handle, 16 bytes; registers it over the socket at
  // `path` first if necessary. kUnavailable if no server listens there, or it
  // owes an answer for too long; kDeadlineExceeded and kCancelled at the
  // bounds; else the server's refusal.
  Status Register(const std::string& path, const Region& region,
                  const Bounds& bounds, std::string* handle);

  // The same for device memory, which stays registered while it is used.
  // REQUIRES: after Use.
  Status Register(const std::string& path, const DeviceRegion& region,
                  const Bounds& bounds, std::string* handle);
  void Use(const DeviceRegion& region);
  // Ends one use. The last one releases the region, and waits until the server
  // has closed it: the caller may then free the memory.
  void EndUse(const DeviceRegion& region);
  // Releases regions after a call without an answer, and waits until the server
  // no longer uses them. False if it still may after `patience`. Uses go on.
  bool Withdraw(const std::vector<DeviceRegion>& regions,
                std::chrono::milliseconds patience = kPatience);

  // Number of the connection by which handles are valid.
  uint64_t generation();
  // Ends the connection `generation`, and with it all registrations, so that
  // the next Register begins anew. Does nothing if there is a later one.
  void Renew(uint64_t generation);

 private:
  // The right to wait for the server's next answer.
  class Turn;
  // Sends the packet that registers a region, and reads the handle.
  using Ask = std::function<Status(ControlSocket*, std::string*)>;
  // Returns the place of a handle, empty where there is none.
  using Known = std::function<std::string*()>;
  // The common part of both Register: `known` runs with mutex_ held, `ask`
  // without it.
  Status Enlist(const std::string& path, const Bounds& bounds,
                const Known& known, const Ask& ask, std::string* handle);
  // Creates a region that calls Forget when it is freed.
  Status Create(size_t bytes, Access access, std::shared_ptr<Region>* region);
  // Forgets a region that is being freed.
  void Forget(const Region* region);
  // Connects unless there is a connection. REQUIRES: mutex_ is held.
  Status Connect(const std::string& path);
  // Disconnects after a failure. REQUIRES: mutex_ is held.
  void Drop();
  // Releases device memory and waits until it is not in use. `socket` may be a
  // connection that another call has replaced.
  bool Release(const std::shared_ptr<ControlSocket>& socket,
               std::vector<std::string> handles,
               std::chrono::milliseconds patience);

  const size_t pool_bytes_;
  // Held while nothing waits.
  std::mutex mutex_;
  std::condition_variable_any turn_ended_;
  // mutex_ guards this and all members below.
  bool has_turn_ = false;
  std::shared_ptr<ControlSocket> socket_;
  uint64_t generation_ = 0;
  std::map<const Region*, std::string> handles_;
  struct Lent {
    int uses = 0;
    // Empty: not registered.
    std::string handle;
  };
  std::map<DeviceRegion, Lent> lent_;
  // Key: the address of the first byte.
  std::map<uintptr_t, std::weak_ptr<Region>> allocated_;
  std::vector<std::shared_ptr<Region>> idle_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_REGISTRY_H_
