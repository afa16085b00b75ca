// gRPC's byte buffers: reading with a bound, and writing.
#ifndef COUNTERWEIGHT_SERVER_CALL_PAYLOAD_H_
#define COUNTERWEIGHT_SERVER_CALL_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "google/protobuf/io/zero_copy_stream.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "grpcpp/support/status.h"

namespace counterweight::server {

// Calls `parse` with the bytes of *payload, which may be compressed with gzip
// or deflate, then frees *payload. Inflates while `parse` reads, so that what a
// small payload inflates to is never in memory as a whole: above max_bytes it
// ends the input and returns RESOURCE_EXHAUSTED. gRPC, 1.83 too, checks the
// same limit after inflating everything.
grpc::Status ParsePayload(
    int64_t max_bytes, grpc::ByteBuffer* payload,
    const std::function<
        grpc::Status(google::protobuf::io::ZeroCopyInputStream*)>& parse);

// Parses a message of at most max_bytes, or returns INVALID_ARGUMENT; frees
// *payload.
grpc::Status ParseMessage(int64_t max_bytes, grpc::ByteBuffer* payload,
                          google::protobuf::MessageLite* message);

// Upper bound of *payload's bytes after decompression, computed without
// decompressing; max_bytes at most if it is compressed.
int64_t InflatedBound(int64_t max_bytes, const grpc::ByteBuffer& payload);

// A payload's bytes in one piece after the other, inflated if it was compressed
// to at most max_bytes (RESOURCE_EXHAUSTED above).
//
// Its slices never free gRPC's memory, the payload does: when gRPC 1.51 is
// short of memory, the last reference to a slice ends the process unless the
// thread is inside gRPC, as it is while it destroys a byte buffer.
class PayloadPieces {
 public:
  grpc::Status Open(int64_t max_bytes, grpc::ByteBuffer* payload);

  std::span<const std::span<const uint8_t>> pieces() const { return pieces_; }
  size_t size() const { return size_; }
  void Clear();

 private:
  grpc::ByteBuffer payload_;  // outlives slices_
  std::vector<grpc::Slice> slices_;
  std::string inflated_;
  std::vector<std::span<const uint8_t>> pieces_;
  size_t size_ = 0;
};

// Writes `message` into *payload.
grpc::Status SerializePayload(const google::protobuf::MessageLite& message,
                              grpc::ByteBuffer* payload);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_CALL_PAYLOAD_H_
