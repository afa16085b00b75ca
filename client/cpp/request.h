// One batch: views of the caller's memory.
#ifndef COUNTERWEIGHT_CLIENT_CPP_REQUEST_H_
#define COUNTERWEIGHT_CLIENT_CPP_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/cpp/location.h"
#include "counterweight/v1/correction_service.pb.h"

namespace counterweight::client {

// An input, read from the caller's memory: little-endian elements,
// C-contiguous, in the request's layout: [num_sequences, length] or packed [sum
// of lengths].
struct Input {
  // Meaning of the numbers; at most one input per role.
  v1::TensorRole role = v1::TENSOR_ROLE_UNSPECIFIED;
  // Log-probs (nats) and advantages: F32, BF16, F16. Masks: U8, each 0 or 1.
  // Policy versions: I32.
  v1::DType dtype = v1::D_TYPE_UNSPECIFIED;
  const void* data = nullptr;
  // Positions times the element's bytes.
  size_t bytes = 0;
  Location location = Location::kHost;
};

// An input of float32, one number per position.
inline Input Float32(v1::TensorRole role, std::span<const float> values) {
  return {role, v1::D_TYPE_F32, values.data(), values.size_bytes()};
}

// The response mask, one byte per position, 1 = the token counts.
inline Input ResponseMask(std::span<const uint8_t> mask) {
  return {v1::TENSOR_ROLE_RESPONSE_MASK, v1::D_TYPE_U8, mask.data(),
          mask.size_bytes()};
}

// The version of the policy that sampled each position, -1: unknown. Needs
// header.labels.policy_version; the answer's message has `staleness`. The
// header's version_spans replace it without a tensor.
inline Input PolicyVersions(std::span<const int32_t> versions) {
  return {v1::TENSOR_ROLE_POLICY_VERSIONS, v1::D_TYPE_I32, versions.data(),
          versions.size_bytes()};
}

// An output to return: WEIGHTS and GRADIENT (F32), KEEP_MASK (U8),
// TOKEN_REASONS (U16), all one per position; SEQUENCE_REASONS (U16), one per
// sequence.
struct Output {
  v1::TensorRole role = v1::TENSOR_ROLE_UNSPECIFIED;
  // Address to write to, in the layout of the inputs. Null: memory of the
  // Response.
  void* data = nullptr;
  // Elements times the element's bytes; 0 if data is null.
  size_t bytes = 0;
  // kCuda needs an address.
  Location location = Location::kHost;
};

// Argument of Client::Correct. All memory that it refers to belongs to the
// caller and must not change until Correct returns. Outputs must not overlap
// each other or inputs.
struct Request {
  // The contract's message without tensors, outputs and destinations, which
  // must be empty. Layout and method are required; the client makes a
  // request_id if it is absent.
  v1::CorrectRequest header;
  std::vector<Input> inputs;
  // Empty: the server's choice, see v1::CorrectRequest.outputs.
  std::vector<Output> outputs;
  // With tensors in Location::kCuda: the stream (cudaStream_t, CUstream) of the
  // work that makes them. The call waits for it, whatever the timeout is; its
  // outputs are complete when it returns. Null: the default stream.
  void* cuda_stream = nullptr;
};

// Every row has `length` positions.
void SetPadded(int64_t num_sequences, int64_t length, Request* request);

// Rows in succession, without padding.
void SetPacked(std::span<const int64_t> sequence_lengths, Request* request);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_REQUEST_H_
