// PolicyLoss's ratio, clips and aggregation, and the KL loss that OpenRLHF's
// actor adds.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_LOSS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_LOSS_H_

#include <optional>
#include <string_view>

#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

// A pair [low, high] in OpenRLHF's form.
struct OpenrlhfInterval {
  double low;
  double high;
};

// Returns nothing and a violation unless the present field is a list of two
// numbers that are not NaN.
std::optional<OpenrlhfInterval> ReadOpenrlhfPair(const BlockReader& reader,
                                                 std::string_view key);

// Facts of the block with several effects.
struct OpenrlhfPolicy {
  bool is_gspo = false;
  // True if the correction is on, by that field.
  bool corrects = false;
  std::string_view correction_field;
};

// Reads clips, aggregation and KL penalty. If the request wants a loss, its
// tensors are required and *translation gets the loss; otherwise only invalid
// fields are reported.
void ReadOpenrlhfLoss(const BlockReader& reader, const OpenrlhfPolicy& policy,
                      const RequestFacts& facts, Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_OPENRLHF_LOSS_H_
