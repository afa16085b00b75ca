// Messages as gRPC carries them: reading with a bound, and writing.
#ifndef COUNTERWEIGHT_SERVER_PAYLOAD_H_
#define COUNTERWEIGHT_SERVER_PAYLOAD_H_

#include <cstdint>

#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace counterweight::server {

// Reads `message` out of *payload, which may be compressed with gzip or
// deflate, and frees *payload. Decompresses while parsing, so that what a small
// payload inflates to is never in memory as a whole: above max_bytes it stops
// with RESOURCE_EXHAUSTED. gRPC 1.51 checks the same limit after inflating
// everything.
grpc::Status ParsePayload(int64_t max_bytes, grpc::ByteBuffer* payload,
                          google::protobuf::MessageLite* message);

// Writes `message` into *payload.
grpc::Status SerializePayload(const google::protobuf::MessageLite& message,
                              grpc::ByteBuffer* payload);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_PAYLOAD_H_
