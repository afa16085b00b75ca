// Reads protobuf's wire format from a message in pieces, as gRPC delivers it,
// so that payloads are copied once, to their final address.
#ifndef COUNTERWEIGHT_PROTO_WIRE_WIRE_READER_H_
#define COUNTERWEIGHT_PROTO_WIRE_WIRE_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "proto/wire/wire_format.h"

namespace counterweight::wire {

// One message in pieces, in order; empty pieces are allowed.
using Pieces = std::span<const std::span<const uint8_t>>;

// A position in a message. Accepts what protobuf's parser accepts, groups
// apart. Every read returns whether the bytes were there; after false the
// position is undefined. Copies are independent.
class WireReader {
 public:
  WireReader() = default;
  explicit WireReader(Pieces message) : pieces_(message) {
    for (const auto& piece : message) left_ += piece.size();
  }

  // Bytes between the position and the end.
  size_t left() const { return left_; }
  bool done() const { return left_ == 0; }

  // A field's number and wire type.
  bool ReadTag(int* field, uint32_t* type) {
    uint64_t tag = 0;
    if (!ReadNumber(kMaxTagBytes, &tag) || tag > UINT32_MAX) return false;
    *field = static_cast<int>(tag >> kTypeBits);
    *type = static_cast<uint32_t>(tag) & ((1U << kTypeBits) - 1);
    return *field != 0;
  }

  bool ReadVarint(uint64_t* value) {
    return ReadNumber(kMaxVarintBytes, value);
  }

  // Reads a length-delimited field's bytes as a reader of their own.
  bool ReadBytes(WireReader* bytes) {
    uint64_t size = 0;
    if (!ReadNumber(kMaxTagBytes, &size) ||
        size > std::min<uint64_t>(left_, kMaxLength)) {
      return false;
    }
    *bytes = *this;
    bytes->left_ = size;
    return Skip(size);
  }

  // Skips a field's value.
  bool SkipField(uint32_t type) {
    uint64_t ignored = 0;
    WireReader bytes;
    switch (type) {
      case kVarint:
        return ReadVarint(&ignored);
      case kFixed64:
        return Skip(sizeof(uint64_t));
      case kLengthDelimited:
        return ReadBytes(&bytes);
      case kFixed32:
        return Skip(sizeof(uint32_t));
      default:
        return false;
    }
  }

  bool Skip(uint64_t count) {
    return Walk(count, [](std::span<const uint8_t>) {});
  }

  // Copies the next `count` bytes.
  bool Copy(size_t count, void* to) {
    return Walk(count, [out = static_cast<uint8_t*>(to)](
                           std::span<const uint8_t> bytes) mutable {
      std::memcpy(out, bytes.data(), bytes.size());
      out += bytes.size();
    });
  }

  // Appends the bytes between this position and `later`, a position in the same
  // message.
  void AppendUpTo(const WireReader& later, std::string* out) const {
    const size_t count = left_ - later.left_;
    const size_t begin = out->size();
    out->resize(begin + count);
    WireReader copy = *this;
    copy.Copy(count, out->data() + begin);
  }

  // Returns all remaining bytes; the position stays.
  std::string Rest() const {
    WireReader end = *this;
    end.left_ = 0;
    std::string bytes;
    AppendUpTo(end, &bytes);
    return bytes;
  }

 private:
  bool ReadNumber(uint32_t max_bytes, uint64_t* value) {
    *value = 0;
    for (uint32_t shift = 0; shift < 7 * max_bytes; shift += 7) {
      uint8_t byte = 0;
      if (!Copy(1, &byte)) return false;
      *value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  // Calls `take` with the next `count` bytes, a piece at a time.
  template <typename Take>
  bool Walk(uint64_t count, Take take) {
    if (count > left_) return false;
    left_ -= count;
    while (count > 0) {
      const std::span<const uint8_t> piece = pieces_[piece_].subspan(within_);
      const size_t step = std::min<uint64_t>(count, piece.size());
      // An empty piece may have no address.
      if (step > 0) take(piece.first(step));
      within_ += step;
      count -= step;
      if (within_ == pieces_[piece_].size()) {
        within_ = 0;
        ++piece_;
      }
    }
    return true;
  }

  Pieces pieces_;
  size_t piece_ = 0;
  size_t within_ = 0;
  size_t left_ = 0;
};

}  // namespace counterweight::wire

#endif  // COUNTERWEIGHT_PROTO_WIRE_WIRE_READER_H_
