// A message as gRPC delivers it.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_MESSAGE_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_MESSAGE_H_

#include <span>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/wire/wire_reader.h"

namespace counterweight::client {

// Keeps a received message alive while it is read.
class Message {
 public:
  // A buffer without bytes (never filled) reads as empty.
  explicit Message(const grpc::ByteBuffer& buffer) {
    if (!buffer.Dump(&slices_).ok()) slices_.clear();
    pieces_.reserve(slices_.size());
    for (const grpc::Slice& slice : slices_) {
      pieces_.emplace_back(slice.begin(), slice.size());
    }
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  // Valid as long as the object lives.
  wire::WireReader reader() const { return wire::WireReader(pieces_); }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<std::span<const uint8_t>> pieces_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_MESSAGE_H_
