// Reads protobuf's wire format from a message in pieces, as gRPC delivers it,
// so that payloads are copied once, to their final address.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_WIRE_READER_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_WIRE_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace counterweight::client {

// One message in pieces, in order; empty pieces are allowed.
using Pieces = std::span<const std::span<const uint8_t>>;

// A position in a message. Every read returns whether the bytes were there;
// after false the position is undefined. Copies are independent.
class WireReader {
 public:
  WireReader() = default;
  explicit WireReader(Pieces message);

  // Bytes between the position and the end.
  size_t left() const { return left_; }
  bool done() const { return left_ == 0; }

  // A field's number and wire type.
  bool ReadTag(uint32_t* field, uint32_t* type);
  bool ReadVarint(uint64_t* value);
  // Reads a length-delimited field's bytes as a reader of their own.
  bool ReadBytes(WireReader* bytes);
  // Skips a field's value.
  bool SkipField(uint32_t type);
  // Copies the next `count` bytes.
  bool Copy(size_t count, void* to);
  // Returns all remaining bytes; the position stays.
  std::string Rest() const;
  // Appends the bytes between this position and `later`, a position in the same
  // message.
  void AppendUpTo(const WireReader& later, std::string* out) const;

 private:
  bool Skip(uint64_t count);
  // Steps over exhausted pieces.
  void SkipEmptyPieces();

  Pieces pieces_;
  size_t piece_ = 0;
  size_t within_ = 0;
  size_t left_ = 0;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_WIRE_READER_H_
