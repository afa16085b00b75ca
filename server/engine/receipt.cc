#include "server/engine/receipt.h"

#include <bit>
#include <cmath>

namespace counterweight::server {
namespace {

// The finalizer of splitmix64: Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014, in Stafford's variant 13.
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  x *= 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

void AddRow(const float* weights, const uint8_t* mask, int64_t length,
            Receipt* receipt) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
  uint64_t sum = 0;
  int64_t tokens = 0;
  int64_t changed = 0;
  double excess = 0;
  for (int64_t t = 0; t < length; ++t) {
    const float w = weights == nullptr ? 1.0F : weights[t];
    if (mask[t] == 0 || w == 0.0F) continue;
    ++tokens;
    changed += w == 1.0F ? 0 : 1;
    excess += static_cast<double>(w) - 1.0;
    sum += Mix((uint64_t{std::bit_cast<uint32_t>(w)} << 20) ^
               (static_cast<uint64_t>(tokens) * kGolden));
  }
  if (tokens == 0) return;
  receipt->fingerprint += Mix(sum + static_cast<uint64_t>(tokens));
  receipt->tokens += tokens;
  receipt->changed_tokens += changed;
  receipt->weight_excess += excess;
}

void Add(const std::optional<Receipt>& part, std::optional<Receipt>* whole) {
  if (!part) return;
  if (!*whole) *whole = Receipt();
  Receipt& sum = **whole;
  sum.fingerprint += part->fingerprint;
  sum.tokens += part->tokens;
  sum.changed_tokens += part->changed_tokens;
  sum.dropped_tokens += part->dropped_tokens;
  sum.weight_excess += part->weight_excess;
}

v1::ReceiptState Judge(const std::optional<Receipt>& issued,
                       const std::optional<Receipt>& applied) {
  // A cast to bfloat16 moves a weight by at most 2^-9 of it. Weights at other
  // tokens have the same sum, but for its rounding.
  constexpr double kRounding = 0x1p-8;
  constexpr double kSameSum = 1e-9;
  if (!issued || !applied) return v1::RECEIPT_STATE_UNSPECIFIED;
  const bool same_tokens = issued->tokens == applied->tokens;
  if (same_tokens && issued->fingerprint == applied->fingerprint) {
    return v1::RECEIPT_STATE_USED;
  }
  if (applied->changed_tokens == 0 &&
      (issued->changed_tokens > 0 || applied->tokens > issued->tokens)) {
    return v1::RECEIPT_STATE_UNUSED;
  }
  const double difference =
      std::abs(applied->weight_excess - issued->weight_excess);
  const auto tokens = static_cast<double>(issued->tokens);
  const bool is_rounded = same_tokens && difference > kSameSum * tokens &&
                          difference <= kRounding * tokens;
  return is_rounded ? v1::RECEIPT_STATE_ROUNDED : v1::RECEIPT_STATE_REPLACED;
}

}  // namespace counterweight::server
