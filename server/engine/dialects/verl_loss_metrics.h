// The metrics of verl's policy losses, from the sums of kernels/:
// verl-project/verl @1dda039b, verl/trainer/ppo/core_algos.py (prefix "actor/")
// and verl/workers/utils/losses.py (kl_loss, kl_coef).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LOSS_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LOSS_METRICS_H_

#include <cstdint>

#include "kernels/loss_spec.h"
#include "kernels/sums.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

// actor/ppo_kl, where l is the log ratio of LossSpec::metrics_source.
enum class VerlPpoKl : uint8_t {
  kNone,
  kMean,         // of -l
  kClampedMean,  // of -l clamped at 20
  kAbsoluteMean  // of |l|
};

// actor/pg_clipfrac and actor/pg_clipfrac_lower.
enum class VerlClipFraction : uint8_t {
  kNone,
  kUpperOnly,  // pg_clipfrac alone: clipped tokens
  kBoth,       // clipped tokens; those that dual clip or the cap of r changes
  kBySign,     // tokens outside either bound by the advantage's sign: > 0; < 0
};

// The metrics of a loss.
struct VerlLossMetrics {
  VerlPpoKl ppo_kl = VerlPpoKl::kNone;
  VerlClipFraction clip_fraction = VerlClipFraction::kNone;
};

// All are means over kept tokens, 0 if there is none; kl_loss is NaN where it
// has nothing to average.
void AddVerlLossMetrics(const VerlLossMetrics& which,
                        const kernels::LossSpec& spec,
                        const kernels::BatchSums& sums, MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_VERL_LOSS_METRICS_H_
