// ROLL's train_infer_correction.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_CORRECTION_H_

#include <cstdint>
#include <vector>

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

enum class RollLevel : uint8_t { kToken, kGeometric, kSequence, kSegment };

// True if tokens of a sequence may differ; a masked one has the ratio 1 then.
constexpr bool IsByToken(RollLevel level) {
  return level == RollLevel::kToken || level == RollLevel::kSegment;
}

// "token", "geometric", "sequence", "segment".
std::string_view RollLevelName(RollLevel level);

// One bound of an enabled filter, which is one rule.
struct RollFilter {
  RollLevel level = RollLevel::kToken;
  bool is_difference = false;  // of probabilities, else the ratio
  double low = 0.0;
  double high = 0.0;
};

struct RollCorrection {
  bool weighs = false;
  RollLevel level = RollLevel::kToken;
  double upper = kernels::kUnbounded;
  // In the order of the rules.
  std::vector<RollFilter> filters;
  // The list has an entry, enabled or not.
  bool lists_filters = false;

  bool compares() const { return weighs || !filters.empty(); }
};

RollCorrection ReadRollCorrection(const BlockReader& reader,
                                  bool ignore_unknown_fields,
                                  Translation* translation);

// Adds the weight and the rules. Without is_weight the weights are 1.
void ApplyRollCorrection(const RollCorrection& correction,
                         Translation* translation);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_ROLL_CORRECTION_H_
