// The checksum by which a scenario compares large tensors.
#ifndef COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_CHECKSUM_H_
#define COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_CHECKSUM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace counterweight::conformance {

// CRC-32 of the data, as zlib computes it; `before` is that of the bytes that
// precede them.
inline uint32_t Checksum(std::span<const std::byte> data, uint32_t before = 0) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < table.size(); ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) {
        table[i] = table[i] >> 1 ^ ((table[i] & 1) != 0 ? 0xEDB88320U : 0);
      }
    }
    return table;
  }();
  uint32_t value = ~before;
  for (const std::byte byte : data) {
    value = value >> 8 ^ kTable[(value ^ static_cast<uint32_t>(byte)) & 0xFF];
  }
  return ~value;
}

}  // namespace counterweight::conformance

#endif  // COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_CHECKSUM_H_
