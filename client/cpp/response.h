// A batch's answer.
#ifndef COUNTERWEIGHT_CLIENT_CPP_RESPONSE_H_
#define COUNTERWEIGHT_CLIENT_CPP_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "client/cpp/options.h"
#include "counterweight/v1/correction_service.pb.h"

namespace counterweight::client {

// An output at its address: the caller's memory if the request named it, else
// memory of the Response.
struct OutputTensor {
  v1::TensorRole role = v1::TENSOR_ROLE_UNSPECIFIED;
  v1::DType dtype = v1::D_TYPE_UNSPECIFIED;
  std::byte* data = nullptr;
  size_t bytes = 0;

  // The elements. REQUIRES: T is the dtype's type.
  template <typename T>
  std::span<T> As() const {
    return {reinterpret_cast<T*>(data), bytes / sizeof(T)};
  }
};

// Uninitialized memory by role, reused for the next answer.
class OutputMemory {
 public:
  // At least `bytes` bytes, valid until the next Reserve of the same role.
  std::byte* Reserve(v1::TensorRole role, size_t bytes);

 private:
  struct Block {
    std::unique_ptr<std::byte[]> data;
    size_t bytes = 0;
  };
  std::map<v1::TensorRole, Block> blocks_;
};

// Answer of Client::Correct. Reuse one for successive batches: it keeps its
// memory and so its pages. After an error everything but `memory` is undefined.
struct Response {
  // The contract's message: loss, metrics, rules, timing, warnings. Its tensors
  // have role and dtype; their bytes are in `outputs`.
  v1::CorrectResponse message;
  // In the order of message.tensors.
  std::vector<OutputTensor> outputs;
  // The transport that carried the bytes; never kAuto.
  Transport transport = Transport::kUnary;
  // Number of attempts, 1 if the first succeeded.
  int attempts = 0;
  // Bytes of all input tensors, and of all output tensors.
  uint64_t input_bytes = 0;
  uint64_t output_bytes = 0;
  // Holds the outputs for which the request names no address.
  OutputMemory memory;

  // Null if the answer has no such output.
  const OutputTensor* Find(v1::TensorRole role) const;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_RESPONSE_H_
