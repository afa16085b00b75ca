// The messages of the contract that are written by hand, so that tensors need
// not pass through protobuf: everything that precedes a tensor's bytes.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_WIRE_FORMAT_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_WIRE_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace counterweight::client {

// https://protobuf.dev/programming-guides/encoding/
inline constexpr uint32_t kVarint = 0;
inline constexpr uint32_t kFixed64 = 1;
inline constexpr uint32_t kLengthDelimited = 2;
inline constexpr uint32_t kFixed32 = 5;

// Field numbers in proto/counterweight/v1, named message and field.
inline constexpr uint32_t kRequestTensors = 4;
inline constexpr uint32_t kResponseTensors = 2;
inline constexpr uint32_t kTensorRole = 1;
inline constexpr uint32_t kTensorDType = 2;
inline constexpr uint32_t kTensorData = 3;
inline constexpr uint32_t kChunkTensor = 1;
inline constexpr uint32_t kChunkOffset = 2;
inline constexpr uint32_t kChunkData = 3;
inline constexpr uint32_t kStreamRequestHeader = 1;
inline constexpr uint32_t kStreamRequestChunk = 2;
inline constexpr uint32_t kStreamResponseAdmission = 1;
inline constexpr uint32_t kStreamResponseResult = 2;
inline constexpr uint32_t kStreamResponseChunk = 3;
inline constexpr uint32_t kStreamResponseSummary = 4;

// Appends the head of field `field`, whose message or bytes of `size` bytes
// follow.
void AppendHead(uint32_t field, size_t size, std::string* out);
// Appends a whole integer field.
void AppendInteger(uint32_t field, uint64_t value, std::string* out);

// Head of a frame that carries a chunk in its field `frame_field`: everything
// that precedes the `size` bytes of data.
std::string ChunkHead(uint32_t frame_field, uint32_t tensor, uint64_t offset,
                      size_t size);

// Head of a Tensor in field `field`: everything that precedes the `size` bytes
// of data.
std::string TensorHead(uint32_t field, int role, int dtype, size_t size);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_WIRE_FORMAT_H_
