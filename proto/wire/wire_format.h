// Parts of protobuf's wire format that server and client write by hand, so that
// tensors need not pass through protobuf.
// https://protobuf.dev/programming-guides/encoding/
#ifndef COUNTERWEIGHT_PROTO_WIRE_WIRE_FORMAT_H_
#define COUNTERWEIGHT_PROTO_WIRE_WIRE_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace counterweight::wire {

inline constexpr uint32_t kVarint = 0;
inline constexpr uint32_t kFixed64 = 1;
inline constexpr uint32_t kLengthDelimited = 2;
inline constexpr uint32_t kFixed32 = 5;
inline constexpr uint32_t kTypeBits = 3;
// The most bytes that protobuf reads of a tag or a length, and of any other
// number.
inline constexpr uint32_t kMaxTagBytes = 5;
inline constexpr uint32_t kMaxVarintBytes = 10;
// The largest length that protobuf reads.
inline constexpr uint64_t kMaxLength = INT32_MAX;

inline void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

// Appends the head of a field; its message or bytes of `size` bytes follow.
inline void AppendHead(int field, size_t size, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << kTypeBits | kLengthDelimited,
               out);
  AppendVarint(size, out);
}

// Appends a whole integer field.
inline void AppendInteger(int field, uint64_t value, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << kTypeBits | kVarint, out);
  AppendVarint(value, out);
}

// Frames `inner` and `size` more bytes as a message in a field.
inline std::string Wrap(int field, const std::string& inner, size_t size) {
  std::string head;
  AppendHead(field, inner.size() + size, &head);
  return head + inner;
}

}  // namespace counterweight::wire

#endif  // COUNTERWEIGHT_PROTO_WIRE_WIRE_FORMAT_H_
