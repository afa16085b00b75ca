#include "server/call/payload.h"

#include <algorithm>

#include "google/protobuf/io/gzip_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "grpc/byte_buffer.h"
#include "grpc/byte_buffer_reader.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

using google::protobuf::io::GzipInputStream;
using google::protobuf::io::LimitingInputStream;
using google::protobuf::io::ZeroCopyInputStream;

// gRPC's C++ classes do not show how a buffer is compressed; its core does.
class PayloadReader final : public grpc::ProtoBufferReader {
 public:
  using grpc::ProtoBufferReader::ProtoBufferReader;

  grpc_compression_algorithm compression() {
    return reader()->buffer_in->data.raw.compression;
  }
};

bool IsCompressed(const grpc::ByteBuffer& payload) {
  grpc::ByteBuffer shared(payload);  // counts references, copies nothing
  PayloadReader reader(&shared);
  return reader.status().ok() && reader.compression() != GRPC_COMPRESS_NONE;
}

grpc::Status TooLarge(int64_t max_bytes) {
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          fmt::format("the message has more than {} bytes after decompression, "
                      "the limit of this server; send the batch by "
                      "CorrectStream, or in smaller ones",
                      max_bytes)};
}

using Parser = std::function<grpc::Status(ZeroCopyInputStream*)>;

grpc::Status ParseStream(int64_t max_bytes, ZeroCopyInputStream* stream,
                         const Parser& parse) {
  // One byte more than allowed, to distinguish "too large" from "just fits".
  LimitingInputStream limited(stream, max_bytes + 1);
  grpc::Status status = parse(&limited);
  return limited.ByteCount() > max_bytes ? TooLarge(max_bytes) : status;
}

}  // namespace

grpc::Status ParsePayload(int64_t max_bytes, grpc::ByteBuffer* payload,
                          const Parser& parse) {
  // An empty message may arrive as no bytes at all.
  if (!payload->Valid() || payload->Length() == 0) return grpc::Status::OK;
  if (static_cast<int64_t>(payload->Length()) > max_bytes) {
    return TooLarge(max_bytes);
  }
  grpc::Status status;
  {
    PayloadReader reader(payload);
    if (!reader.status().ok()) return reader.status();
    if (reader.compression() == GRPC_COMPRESS_NONE) {
      status = ParseStream(max_bytes, &reader, parse);
    } else {
      // AUTO reads both formats that gRPC knows, gzip and zlib ("deflate").
      GzipInputStream inflated(&reader, GzipInputStream::AUTO);
      status = ParseStream(max_bytes, &inflated, parse);
    }
  }
  payload->Clear();
  return status;
}

grpc::Status ParseMessage(int64_t max_bytes, grpc::ByteBuffer* payload,
                          google::protobuf::MessageLite* message) {
  bool is_parsed = true;
  grpc::Status status = ParsePayload(max_bytes, payload, [&](auto* input) {
    is_parsed = message->ParseFromZeroCopyStream(input);
    return grpc::Status::OK;
  });
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            fmt::format("a {} has at most {} bytes after decompression",
                        message->GetTypeName(), max_bytes)};
  }
  if (status.ok() && !is_parsed) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            fmt::format("the request is not a {}: its bytes do not parse",
                        message->GetTypeName())};
  }
  return status;
}

int64_t InflatedBound(int64_t max_bytes, const grpc::ByteBuffer& payload) {
  const auto size = static_cast<int64_t>(payload.Length());
  if (!IsCompressed(payload)) return size;
  // Deflate's best.
  constexpr int64_t kMaxRatio = 1032;
  return std::min(max_bytes, size * kMaxRatio);
}

grpc::Status PayloadPieces::Open(int64_t max_bytes, grpc::ByteBuffer* payload) {
  Clear();
  if (!payload->Valid()) return grpc::Status::OK;
  if (!IsCompressed(*payload)) {
    payload_.Swap(payload);
    grpc::Status status = payload_.Dump(&slices_);
    if (!status.ok()) return status;
    for (const grpc::Slice& slice : slices_) {
      pieces_.emplace_back(slice.begin(), slice.size());
      size_ += slice.size();
    }
  } else {
    PayloadReader reader(payload);
    if (!reader.status().ok()) return reader.status();
    GzipInputStream stream(&reader, GzipInputStream::AUTO);
    const void* data = nullptr;
    for (int count = 0; stream.Next(&data, &count);) {
      if (static_cast<int64_t>(inflated_.size()) + count > max_bytes) {
        return TooLarge(max_bytes);
      }
      inflated_.append(static_cast<const char*>(data),
                       static_cast<size_t>(count));
    }
    size_ = inflated_.size();
    pieces_.emplace_back(reinterpret_cast<const uint8_t*>(inflated_.data()),
                         size_);
  }
  payload->Clear();
  return static_cast<int64_t>(size_) > max_bytes ? TooLarge(max_bytes)
                                                 : grpc::Status::OK;
}

void PayloadPieces::Clear() {
  slices_.clear();
  payload_.Clear();
  inflated_.clear();
  pieces_.clear();
  size_ = 0;
}

grpc::Status SerializePayload(const google::protobuf::MessageLite& message,
                              grpc::ByteBuffer* payload) {
  bool own_buffer = false;
  return grpc::GenericSerialize<grpc::ProtoBufferWriter,
                                google::protobuf::MessageLite>(message, payload,
                                                               &own_buffer);
}

}  // namespace counterweight::server
