// The policy losses of verl's POLICY_LOSS_REGISTRY
// (verl/trainer/ppo/core_algos.py) as rows, each with its own fields.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LOSS_MODES_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LOSS_MODES_H_

#include <cstdint>
#include <limits>
#include <string_view>

#include "kernels/loss_spec.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/verl_loss.h"
#include "server/engine/dialects/verl_loss_metrics.h"

namespace counterweight::server {

// The loss_mode of compute_policy_loss_reinforce.
inline constexpr std::string_view kVerlReinforce = "reinforce";

// Factors that do not overflow where kernels/ compute in float32.
inline constexpr NumberRange kVerlCoefficient{
    .lowest = 0.0, .highest = std::numeric_limits<float>::max()};

// A loss's aggregation of tokens.
enum class VerlLossAggregation : uint8_t {
  kLossAggMode,
  kSeqMeanTokenMean,  // whatever loss_agg_mode is
  kGspo,              // that before 0.9.1, and loss_agg_mode since
  kMeanOverRows       // of one loss per row, empty rows and all
};

// Reads a loss's own fields into *spec; verl checks no others.
using ReadVerlFields = void (*)(const BlockReader& actor,
                                const BlockReader& policy_loss,
                                kernels::LossSpec* spec);

// One function of POLICY_LOSS_REGISTRY.
struct VerlLossMode {
  std::string_view name;
  kernels::Surrogate surrogate;
  ReadVerlFields read;
  // The log ratio is clamped at 20 before everything.
  bool clamps;
  VerlLossAggregation aggregation;
  VerlPpoKl ppo_kl;
  VerlClipFraction clip_fraction;
};

// Returns the row of loss_mode, or null and a violation.
const VerlLossMode* FindVerlLossMode(const BlockReader& policy_loss,
                                     VerlMode mode);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LOSS_MODES_H_
