#include "server/log/traceparent.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "spdlog/fmt/fmt.h"
#include "spdlog/fmt/ranges.h"

namespace counterweight::server {
namespace {

// "VV-TTTT...-PPPP...-FF" of version 00; later versions may append fields.
constexpr size_t kBytes = 2 + 1 + 32 + 1 + 16 + 1 + 2;

// Upper-case digits are not valid.
int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

template <size_t kSize>
bool FromHex(std::string_view text, std::array<uint8_t, kSize>* bytes) {
  for (size_t i = 0; i < kSize; ++i) {
    const int high = Digit(text[2 * i]);
    const int low = Digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*bytes)[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

template <size_t kSize>
bool IsZero(const std::array<uint8_t, kSize>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](uint8_t byte) { return byte == 0; });
}

template <size_t kSize>
std::array<uint8_t, kSize> Random() {
  thread_local std::mt19937_64 random([] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }());
  std::array<uint8_t, kSize> bytes{};
  while (IsZero(bytes)) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  }
  return bytes;
}

}  // namespace

std::optional<Traceparent> ParseTraceparent(std::string_view text) {
  if (text.size() < kBytes) return std::nullopt;
  std::array<uint8_t, 1> version{};
  std::array<uint8_t, 1> flags{};
  Traceparent parsed{};
  if (text[2] != '-' || text[35] != '-' || text[52] != '-' ||
      !FromHex(text.substr(0, 2), &version) ||
      !FromHex(text.substr(3, 32), &parsed.trace_id) ||
      !FromHex(text.substr(36, 16), &parsed.parent_id) ||
      !FromHex(text.substr(53, 2), &flags)) {
    return std::nullopt;
  }
  if (version[0] == 0xFF || IsZero(parsed.trace_id) ||
      IsZero(parsed.parent_id)) {
    return std::nullopt;
  }
  const bool has_more = text.size() > kBytes;
  if (has_more && (version[0] == 0 || text[kBytes] != '-')) return std::nullopt;
  parsed.is_sampled = (flags[0] & 1) != 0;
  return parsed;
}

std::string ToHex(const TraceId& id) {
  return fmt::format("{:02x}", fmt::join(id, ""));
}

TraceId MakeTraceId() { return Random<16>(); }
SpanId MakeSpanId() { return Random<8>(); }

}  // namespace counterweight::server
