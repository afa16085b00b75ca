// Protobuf's wire format, read from a message in pieces as gRPC has it, so that
// payloads are copied once, to where they stay.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_WIRE_READER_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_WIRE_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace counterweight::client {

// One message in pieces, in order; empty pieces are allowed.
using Pieces = std::span<const std::span<const uint8_t>>;

// A position in a message. Every read tells whether the bytes were there; after
// a false the position is anywhere. Copies are independent.
class WireReader {
 public:
  WireReader() = default;
  explicit WireReader(Pieces message);

  // Bytes in front of the end.
  size_t left() const { return left_; }
  bool done() const { return left_ == 0; }

  // A field's number and wire type.
  bool ReadTag(uint32_t* field, uint32_t* type);
  bool ReadVarint(uint64_t* value);
  // A length-delimited field's bytes, as a reader of their own.
  bool ReadBytes(WireReader* bytes);
  // Skips a field's value.
  bool SkipField(uint32_t type);
  // The next `count` bytes.
  bool Copy(size_t count, void* to);
  // All that is left, as a string; the position stays.
  std::string Rest() const;
  // Appends what lies between this position and `later`, the same message's.
  void AppendUpTo(const WireReader& later, std::string* out) const;

 private:
  bool Skip(uint64_t count);
  // Steps over pieces that are used up.
  void SkipEmptyPieces();

  Pieces pieces_;
  size_t piece_ = 0;
  size_t within_ = 0;
  size_t left_ = 0;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_WIRE_READER_H_
