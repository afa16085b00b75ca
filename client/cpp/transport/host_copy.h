// A batch on a device, by way of the host.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_HOST_COPY_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_HOST_COPY_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "client/cpp/status.h"
#include "client/cpp/transport/prepared_request.h"

namespace counterweight::client {

// The host's copy of a request's device tensors. Refers to the request.
class HostCopy {
 public:
  explicit HostCopy(const PreparedRequest& original);
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  // Waits for the request's stream and copies the inputs.
  Status Make();
  // The request with tensors on the host only. REQUIRES: Make succeeded.
  const PreparedRequest& request() const { return copy_; }
  // Copies outputs to the device, and names their addresses there.
  Status Return(Response* response) const;

 private:
  std::byte* Allocate(size_t bytes);

  const PreparedRequest& original_;
  PreparedRequest copy_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_HOST_COPY_H_
