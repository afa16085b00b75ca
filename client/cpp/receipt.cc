#include "client/cpp/receipt.h"

#include <bit>
#include <cstddef>

namespace counterweight::client {
namespace {

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  x *= 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

v1::Receipt OfRow(const float* weights, std::span<const uint8_t> mask) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
  uint64_t sum = 0;
  uint64_t tokens = 0;
  int64_t changed = 0;
  double excess = 0;
  for (size_t t = 0; t < mask.size(); ++t) {
    const float w = weights == nullptr ? 1.0F : weights[t];
    if (mask[t] == 0 || w == 0.0F) continue;
    ++tokens;
    changed += w == 1.0F ? 0 : 1;
    excess += static_cast<double>(w) - 1.0;
    sum += Mix((uint64_t{std::bit_cast<uint32_t>(w)} << 20) ^ tokens * kGolden);
  }
  v1::Receipt receipt;
  if (tokens == 0) return receipt;
  receipt.set_fingerprint(Mix(sum + tokens));
  receipt.set_tokens(static_cast<int64_t>(tokens));
  receipt.set_changed_tokens(changed);
  receipt.set_weight_excess(excess);
  return receipt;
}

bool Fit(std::span<const float> weights, std::span<const uint8_t> mask,
         std::span<const int64_t> lengths) {
  if (!weights.empty() && weights.size() != mask.size()) return false;
  size_t left = mask.size();
  for (const int64_t length : lengths) {
    if (length < 0 || static_cast<size_t>(length) > left) return false;
    left -= static_cast<size_t>(length);
  }
  return left == 0;
}

}  // namespace

bool AddApplied(std::span<const float> weights, std::span<const uint8_t> mask,
                std::span<const int64_t> lengths, v1::Receipt* receipt) {
  if (!Fit(weights, mask, lengths)) return false;
  const float* row = weights.empty() ? nullptr : weights.data();
  for (const int64_t length : lengths) {
    const auto size = static_cast<size_t>(length);
    AddReceipt(OfRow(row, mask.first(size)), receipt);
    if (row != nullptr) row += size;
    mask = mask.subspan(size);
  }
  return true;
}

void AddReceipt(const v1::Receipt& part, v1::Receipt* receipt) {
  receipt->set_fingerprint(receipt->fingerprint() + part.fingerprint());
  receipt->set_tokens(receipt->tokens() + part.tokens());
  receipt->set_changed_tokens(receipt->changed_tokens() +
                              part.changed_tokens());
  receipt->set_dropped_tokens(receipt->dropped_tokens() +
                              part.dropped_tokens());
  receipt->set_weight_excess(receipt->weight_excess() + part.weight_excess());
}

}  // namespace counterweight::client
