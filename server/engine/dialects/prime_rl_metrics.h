// prime-rl's metrics, from the sums of a batch. The others are those of
// prime_rl_token_metrics.h: most statistics over rows.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PRIME_RL_METRICS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PRIME_RL_METRICS_H_

#include <cstdint>
#include <string_view>

#include "kernels/sums.h"
#include "server/engine/dialect.h"

namespace counterweight::server {

enum class PrimeRlType : uint8_t { kDefault, kIpo, kRefKl };

// The prefix of the names of a type's statistics over rows.
constexpr std::string_view PrefixOf(PrimeRlType type) {
  return type == PrimeRlType::kRefKl ? "ref_kl/" : "";
}

void AddPrimeRlMetrics(PrimeRlType type, const kernels::BatchSums& sums,
                       MetricMap* metrics);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_PRIME_RL_METRICS_H_
