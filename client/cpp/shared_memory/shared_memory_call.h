// Correct with tensors in shared memory.
#ifndef COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_SHARED_MEMORY_CALL_H_
#define COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_SHARED_MEMORY_CALL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/response.h"
#include "client/cpp/shared_memory/registry.h"
#include "client/cpp/transport/attempt.h"
#include "client/cpp/transport/prepared_request.h"

namespace counterweight::client {

// True if the call's deadline has passed or a stop was requested.
bool EndsCall(const Status& status);
// True if the server does not know memory that a request names.
bool IsAboutSharedMemory(const Status& status);

// One attempt. Tensors in regions of Registry::Allocate and on a device stay
// there; the others are copied into and out of regions of the pool.
class SharedMemoryCall {
 public:
  SharedMemoryCall(Registry* registry, const PreparedRequest& request);
  ~SharedMemoryCall();
  SharedMemoryCall(const SharedMemoryCall&) = delete;
  SharedMemoryCall& operator=(const SharedMemoryCall&) = delete;

  // Registers device memory with the server that listens at `path` and computes
  // on `devices`, after waiting for its stream; does nothing without any.
  // kFailedPrecondition: that memory cannot be shared; others as of
  // Registry::Register.
  Status Lend(const std::string& path, const std::vector<std::string>& devices,
              const Bounds& bounds);
  // The server refused device memory, not for want of room.
  bool device_refused() const { return device_refused_; }
  // Copies the inputs and registers all other regions. If it fails, nothing of
  // the batch was sent. REQUIRES: Lend succeeded.
  Status Share(const std::string& path, const Bounds& bounds);

  // The connection over which Share registered the regions.
  uint64_t generation() const { return generation_; }

  // REQUIRES: Share succeeded. Call it once.
  Outcome Run(const Endpoint& endpoint, Attempt* attempt, Response* response);

 private:
  // A tensor's bytes in a region.
  struct Place {
    std::shared_ptr<Region> region;
    // Instead of a region.
    std::optional<DeviceRegion> device;
    size_t offset = 0;
    size_t bytes = 0;
    v1::SharedMemoryRange range;

    std::byte* data() const { return region->data() + offset; }
  };

  // Finds a place for each tensor: its own, or one in `*pooled`.
  struct Tensor {
    const void* data;
    size_t bytes;
    v1::DType dtype;
    Location location;
  };
  std::vector<Tensor> Inputs() const;
  std::vector<Tensor> Outputs() const;
  Status LendTensors(const std::string& path,
                     const std::vector<std::string>& devices,
                     const std::vector<Tensor>& tensors, Access access,
                     const Bounds& bounds, std::vector<Place>* places);
  Status FindPlaces(const std::vector<Tensor>& tensors, Access access,
                    std::shared_ptr<Region>* pooled,
                    std::vector<Place>* places);
  Status RegisterPlaces(const std::string& path, const Bounds& bounds,
                        std::vector<Place>* places);
  v1::CorrectRequest Message() const;
  // Copies outputs from the pool to their addresses.
  Status TakeOutputs(Response* response) const;

  Registry& registry_;
  const PreparedRequest& request_;
  // The outputs that have a destination.
  const std::vector<Output> wanted_;
  uint64_t generation_ = 0;
  std::shared_ptr<Region> pooled_inputs_;
  std::shared_ptr<Region> pooled_outputs_;
  std::vector<Place> inputs_;
  std::vector<Place> outputs_;
  // Uses that the destructor ends.
  std::vector<DeviceRegion> lent_;
  bool device_refused_ = false;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_SHARED_MEMORY_SHARED_MEMORY_CALL_H_
