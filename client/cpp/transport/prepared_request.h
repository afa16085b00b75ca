// A consistent request and its sizes.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_PREPARED_REQUEST_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_PREPARED_REQUEST_H_

#include <cstddef>
#include <cstdint>

#include "client/cpp/request.h"
#include "client/cpp/status.h"
#include "client/cpp/transport/chunk_order.h"
#include "counterweight/v1/correction_service.pb.h"

namespace counterweight::client {

class CudaDriver;

// The device of a request's tensors.
struct DeviceOfRequest {
  // Null: all tensors are on the host.
  CudaDriver* driver = nullptr;
  // The driver's index.
  int index = 0;
  void* stream = nullptr;
};

struct PreparedRequest {
  // Request.header with outputs and a request_id; no tensors yet.
  v1::CorrectRequest header;
  std::span<const Input> inputs;
  std::span<const Output> outputs;
  // Positions and rows of the layout.
  uint64_t num_positions = 0;
  uint64_t num_sequences = 0;
  // Sum over all inputs.
  uint64_t input_bytes = 0;
  DeviceOfRequest device;

  // Sizes for ChunkOrder, in the order of the inputs.
  std::vector<ChunkedTensor> Chunked() const;
};

// Checks the properties that the library relies on: the sizes of tensors, their
// device, and the header's empty fields. The server checks everything else.
// `prepared` refers to `request`. kFailedPrecondition: the request has tensors
// on a device, and this process has no driver.
Status Prepare(const Request& request, PreparedRequest* prepared);

// Bytes of one element; 0 for types that this library does not know.
size_t ElementBytes(v1::DType dtype);
// Reads num_positions and num_sequences of a layout, at most 2^48 positions.
// False if the layout is missing or invalid.
bool ReadLayout(const v1::Layout& layout, PreparedRequest* request);
// Bytes of a tensor in the layout.
uint64_t TensorBytes(v1::TensorRole role, v1::DType dtype,
                     const PreparedRequest& request);
// Bytes of an output in the layout; 0 if the role is not an output.
uint64_t OutputBytes(v1::TensorRole role, const PreparedRequest& request);
// Element type of an output; UNSPECIFIED if the role is not an output.
v1::DType OutputDType(v1::TensorRole role);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_PREPARED_REQUEST_H_
