#include "server/engine/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> NemoRlEquivalents() {
  return {
      {"token_tis",
       R"({"reference_policy_kl_penalty": 0.0, )"
       R"("use_importance_sampling_correction": true, )"
       R"("truncated_importance_sampling_type": "tis", )"
       R"("truncated_importance_sampling_ratio": 2.0})",
       {differences::kUnclamped}},
      {"seq_tis",
       R"({"reference_policy_kl_penalty": 0.0, )"
       R"("use_importance_sampling_correction": true, )"
       R"("truncated_importance_sampling_type": "tis", )"
       R"("truncated_importance_sampling_ratio": 2.0, )"
       R"("token_level_loss": false, )"
       R"("sequence_level_importance_ratios": true})",
       {differences::kUnclamped}},
      {"none", R"({"reference_policy_kl_penalty": 0.0})"},
      {"trl_token_truncate", R"({"reference_policy_kl_penalty": 0.0, )"
                             R"("use_importance_sampling_correction": true, )"
                             R"("truncated_importance_sampling_type": "tis", )"
                             R"("truncated_importance_sampling_ratio": 3.0})"},
      {"trl_sequence_truncate",
       R"({"reference_policy_kl_penalty": 0.0, )"
       R"("use_importance_sampling_correction": true, )"
       R"("truncated_importance_sampling_type": "tis", )"
       R"("truncated_importance_sampling_ratio": 3.0, )"
       R"("token_level_loss": false, )"
       R"("sequence_level_importance_ratios": true})"},
      {"skyrl_token_tis",
       R"({"reference_policy_kl_penalty": 0.0, )"
       R"("use_importance_sampling_correction": true, )"
       R"("truncated_importance_sampling_type": "tis", )"
       R"("truncated_importance_sampling_ratio": 2.0})",
       {differences::kUnclamped}},
      {"skyrl_sequence_tis",
       R"({"reference_policy_kl_penalty": 0.0, )"
       R"("use_importance_sampling_correction": true, )"
       R"("truncated_importance_sampling_type": "tis", )"
       R"("truncated_importance_sampling_ratio": 5.0, )"
       R"("token_level_loss": false, )"
       R"("sequence_level_importance_ratios": true})",
       {differences::kUnclamped}},
      {"openrlhf_tis", R"({"reference_policy_kl_penalty": 0.0, )"
                       R"("use_importance_sampling_correction": true, )"
                       R"("truncated_importance_sampling_type": "tis", )"
                       R"("truncated_importance_sampling_ratio": 5.0, )"
                       R"("truncated_importance_sampling_ratio_min": 0.5})"},
      {"ppo_clip",
       R"({"reference_policy_kl_penalty": 0.0, "ratio_clip_c": 3.0})",
       {differences::kUnclamped}},
      {"dapo",
       R"({"reference_policy_kl_penalty": 0.0, "ratio_clip_max": )"
       R"(0.28})",
       {differences::kUnclamped}},
      {"grpo",
       R"({"reference_policy_kl_penalty": 0.0, "token_level_loss": )"
       R"(false})",
       {differences::kUnclamped}},
      {"gspo", R"({"reference_policy_kl_penalty": 0.0, "token_level_loss": )"
               R"(false, "sequence_level_importance_ratios": true, )"
               R"("ratio_clip_min": 0.0003, "ratio_clip_max": 0.0004})"},
      {"cispo",
       R"({"reference_policy_kl_penalty": 0.0, "use_cispo": true, )"
       R"("ratio_clip_min": 1.0, "ratio_clip_max": 4.0})",
       {differences::kUnclamped}},
      {"reinforce",
       R"({"reference_policy_kl_penalty": 0.0, "disable_ppo_ratio": )"
       R"(true})"},
      {"gpg", R"({"reference_policy_kl_penalty": 0.0, "disable_ppo_ratio": )"
              R"(true})"},
      {"token_tis_ppo_clip",
       R"({"reference_policy_kl_penalty": 0.0, )"
       R"("use_importance_sampling_correction": true, )"
       R"("truncated_importance_sampling_type": "tis", )"
       R"("truncated_importance_sampling_ratio": 2.0, )"
       R"("ratio_clip_c": 3.0})",
       {differences::kUnclamped}},
  };
}

}  // namespace counterweight::server
