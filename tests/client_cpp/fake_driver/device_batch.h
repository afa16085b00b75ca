// A batch in the memory of the fake device.
#ifndef COUNTERWEIGHT_TESTS_CLIENT_CPP_FAKE_DRIVER_DEVICE_BATCH_H_
#define COUNTERWEIGHT_TESTS_CLIENT_CPP_FAKE_DRIVER_DEVICE_BATCH_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "client/cpp/request.h"
#include "client/cpp/response.h"

namespace counterweight::client {

// Device memory of one batch: a block for its inputs, one for its outputs.
class DeviceBatch {
 public:
  enum class Memory {
    kExportable,  // cudaMalloc
    kPooled,      // cudaMallocAsync, which has no handle
  };

  // Queues the copies of the inputs, in `stream()`. All outputs are on the
  // device, and hold garbage.
  DeviceBatch(const Request& host, Memory memory = Memory::kExportable,
              int device = 0);
  ~DeviceBatch();
  DeviceBatch(const DeviceBatch&) = delete;
  DeviceBatch& operator=(const DeviceBatch&) = delete;

  const Request& request() const { return request_; }
  cudaStream_t stream() const { return stream_; }
  void* inputs() const { return inputs_; }
  void* outputs() const { return outputs_; }
  // Fails the test unless the response's outputs are those on the device, and
  // copies them to the host.
  void Fetch(Response* response);

 private:
  void* Allocate(size_t bytes);

  Request request_;
  const Memory memory_;
  const int device_;
  cudaStream_t stream_ = nullptr;
  void* inputs_ = nullptr;
  void* outputs_ = nullptr;
  // Pinned: the copies' sources.
  void* staging_ = nullptr;
  std::vector<std::vector<std::byte>> fetched_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_TESTS_CLIENT_CPP_FAKE_DRIVER_DEVICE_BATCH_H_
