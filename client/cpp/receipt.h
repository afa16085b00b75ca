// Receipts: what an optimizer step received, and what its loss used.
#ifndef COUNTERWEIGHT_CLIENT_CPP_RECEIPT_H_
#define COUNTERWEIGHT_CLIENT_CPP_RECEIPT_H_

#include <cstdint>
#include <span>

#include "counterweight/v1/receipt.pb.h"

namespace counterweight::client {

// Adds the rows with these weights and masks, where a loss is multiplied by
// them, to *receipt, which begins empty; dropped_tokens stays. weights: as many
// as mask, row after row; empty: all are 1. False, and nothing was added: the
// lengths are not >= 0, or do not add up to the mask.
bool AddApplied(std::span<const float> weights, std::span<const uint8_t> mask,
                std::span<const int64_t> lengths, v1::Receipt* receipt);

// Adds another part's.
void AddReceipt(const v1::Receipt& part, v1::Receipt* receipt);

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_RECEIPT_H_
