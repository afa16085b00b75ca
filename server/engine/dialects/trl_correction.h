// TRL's importance sampling correction and off-policy sequence mask, from
// huggingface/trl @f2cd5771: trl/trainer/grpo_config.py (__post_init__),
// trl/trainer/grpo_trainer.py (_generate_and_score_completions,
// get_off_policy_mask). README.md has the decisions.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_CORRECTION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_CORRECTION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/spec.h"
#include "server/engine/dialect.h"
#include "server/engine/dialects/block_reader.h"

namespace counterweight::server {

inline constexpr std::string_view kTrlMode = "vllm_importance_sampling_mode";
inline constexpr std::string_view kTrlDefaultMode = "sequence_mask";
inline constexpr std::string_view kTrlOffPolicyMask =
    "off_policy_mask_threshold";

struct TrlCorrection {
  // True if the sampler's log-probs are required.
  bool needs_rollout = false;
  // Level kNone: no correction.
  kernels::WeightSpec weight;
  // nats; absent: no mask.
  std::optional<double> off_policy_mask_threshold;
};

// Settings that TRL refuses, or that silently do harm there, become violations;
// TRL's warnings go to *warnings.
TrlCorrection ReadTrlCorrection(const BlockReader& reader,
                                const RequestFacts& facts,
                                std::vector<std::string>* warnings);

// Returns a rule that keeps a row if its mean of (current - sampler) is >=
// -threshold or its advantage is not negative: DeepSeek-V3.2, 2025,
// arXiv:2512.02556, equation 9.
kernels::RejectionRule TrlOffPolicyMask(double threshold,
                                        kernels::RatioSource source);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_TRL_CORRECTION_H_
