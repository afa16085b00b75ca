// Regions that a server knows, and those that wait for the next batch.
#ifndef COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_REGISTRY_H_
#define COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/cpp/shared_memory/control_socket.h"
#include "client/cpp/shared_memory/region.h"
#include "client/cpp/status.h"

namespace counterweight::client {

// Thread-safe. Create with std::make_shared: regions hold it weakly.
class Registry : public std::enable_shared_from_this<Registry> {
 public:
  // Keeps idle regions of at most `pool_bytes` in all.
  explicit Registry(size_t pool_bytes) : pool_bytes_(pool_bytes) {}

  // A region of the caller's, found by address from now on.
  Status Allocate(size_t bytes, Access access, std::shared_ptr<Region>* region);

  // The allocated region that holds all of [data, data + bytes); null if none.
  std::shared_ptr<Region> Find(const void* data, size_t bytes, Access access);

  // A region of at least `bytes` for one batch, an idle one if there is one.
  // Its bytes are anything.
  Status Acquire(size_t bytes, Access access, std::shared_ptr<Region>* region);
  // Gives it back for the next batch. Not called for a region that the server
  // may still use: it goes then.
  void Recycle(std::shared_ptr<Region> region);
  // Ends all idle regions: the server counts them among what clients share, and
  // may have room without them. False if there was none.
  bool Trim();

  // The region's handle, 16 bytes, registered over the socket at `path` if it
  // is not yet. kUnavailable if nobody listens there; else the server's
  // refusal.
  Status Register(const std::string& path, const Region& region,
                  std::string* handle);

  // True if there is a connection and the server has not closed it.
  bool IsConnected();

 private:
  // A region that is forgotten when it goes.
  Status Create(size_t bytes, Access access, std::shared_ptr<Region>* region);
  // Forgets a region that is about to go.
  void Forget(const Region* region);

  const size_t pool_bytes_;
  std::mutex mutex_;
  // Guarded by mutex_, as all below.
  std::unique_ptr<ControlSocket> socket_;
  std::map<const Region*, std::string> handles_;
  // By first byte.
  std::map<uintptr_t, std::weak_ptr<Region>> allocated_;
  std::vector<std::shared_ptr<Region>> idle_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_REGISTRY_H_
