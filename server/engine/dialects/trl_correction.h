// TRL's importance sampling correction and off-policy sequence mask, as of
// huggingface/trl @f2cd5771: trl/trainer/grpo_config.py (__post_init__),
// trl/trainer/grpo_trainer.py (_generate_and_score_completions,
// get_off_policy_mask). README.md tells what was decided here.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_CORRECTION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/spec.h"
#include "server/engine/dialects/block_reader.h"
#include "server/engine/dialects/dialect.h"

namespace counterweight::server {

inline constexpr std::string_view kTrlMode = "vllm_importance_sampling_mode";
inline constexpr std::string_view kTrlDefaultMode = "sequence_mask";
inline constexpr std::string_view kTrlOffPolicyMask =
    "off_policy_mask_threshold";

struct TrlCorrection {
  // The sampler's log-probs are expected to be there.
  bool needs_rollout = false;
  // Level kNone: no correction.
  kernels::WeightSpec weight;
  // nats; absent: no mask.
  std::optional<double> off_policy_mask_threshold;
};

// What TRL refuses, and what would silently do harm there, becomes violations;
// what TRL warns of, *warnings.
TrlCorrection ReadTrlCorrection(const BlockReader& reader,
                                const RequestFacts& facts,
                                std::vector<std::string>* warnings);

// Keeps a row where its mean of (current - sampler) is >= -threshold or its
// advantage is not negative: DeepSeek-V3.2, 2025, arXiv:2512.02556, equation 9.
kernels::RejectionRule TrlOffPolicyMask(double threshold,
                                        kernels::RatioSource source);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_CORRECTION_H_
