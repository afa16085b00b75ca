// Numbers of protobuf's wire format,
// https://protobuf.dev/programming-guides/encoding/.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_WIRE_H_
#define COUNTERWEIGHT_SERVER_ENGINE_WIRE_H_

#include <cstdint>

namespace counterweight::server::wire {

inline constexpr uint32_t kVarint = 0;
inline constexpr uint32_t kFixed64 = 1;
inline constexpr uint32_t kLengthDelimited = 2;
inline constexpr uint32_t kFixed32 = 5;
inline constexpr uint32_t kTypeBits = 3;
// The most bytes that protobuf reads of a tag or a length, and of any other
// number.
inline constexpr uint32_t kMaxTagBytes = 5;
inline constexpr uint32_t kMaxVarintBytes = 10;

}  // namespace counterweight::server::wire

#endif  // COUNTERWEIGHT_SERVER_ENGINE_WIRE_H_
