// Receipts: the weights that an optimizer step received, and those that its
// loss used.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_RECEIPT_H_
#define COUNTERWEIGHT_SERVER_ENGINE_RECEIPT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "counterweight/v1/receipt.pb.h"

namespace counterweight::server {

// v1::Receipt. Receipts of several batches add up to that of all their rows.
struct Receipt {
  uint64_t fingerprint = 0;
  int64_t tokens = 0;
  int64_t changed_tokens = 0;
  int64_t dropped_tokens = 0;
  double weight_excess = 0;
};

// Adds the row with the weights and the mask [length] to *receipt. weights:
// null: all 1. The formula is that of v1::Receipt; dropped_tokens stays.
void AddRow(const float* weights, const uint8_t* mask, int64_t length,
            Receipt* receipt);

// Adds `part` to *whole, which begins as `part`.
void Add(const std::optional<Receipt>& part, std::optional<Receipt>* whole);

// Whether weights with the receipt `applied` are those of `issued`;
// RECEIPT_STATE_UNSPECIFIED if either is absent.
v1::ReceiptState Judge(const std::optional<Receipt>& issued,
                       const std::optional<Receipt>& applied);

// One process' report of an optimizer step, checked.
struct StepReport {
  std::string request_id;
  std::string run;
  int64_t step = 0;
  int64_t tokens = 0;
  std::optional<Receipt> issued;
  std::optional<Receipt> applied;
  std::map<std::string, int64_t> skipped_batches;
  bool ratio_all_one = false;
  int64_t num_reports = 1;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_RECEIPT_H_
