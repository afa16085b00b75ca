#include "server/engine/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> TrlEquivalents() {
  return {
      {"token_tis",
       R"({"vllm_importance_sampling_mode": "token_truncate", )"
       R"("vllm_importance_sampling_clip_max": 2.0})",
       {differences::kUnclamped}},
      {"seq_tis",
       R"({"vllm_importance_sampling_mode": "sequence_truncate", )"
       R"("vllm_importance_sampling_clip_max": 2.0})",
       {differences::kUnclamped}},
      {"icepop", R"({"vllm_importance_sampling_mode": "token_mask", )"
                 R"("vllm_importance_sampling_clip_min": 0.5, )"
                 R"("vllm_importance_sampling_clip_max": 5.0})"},
      {"none", R"({"vllm_importance_sampling_correction": false})"},
      {"trl_token_truncate",
       R"({"vllm_importance_sampling_mode": "token_truncate", )"
       R"("vllm_importance_sampling_clip_max": 3.0})"},
      {"trl_token_mask", R"({"vllm_importance_sampling_mode": "token_mask", )"
                         R"("vllm_importance_sampling_clip_max": 3.0})"},
      {"trl_sequence_truncate",
       R"({"vllm_importance_sampling_mode": "sequence_truncate", )"
       R"("vllm_importance_sampling_clip_max": 3.0})"},
      {"trl_sequence_mask",
       R"({"vllm_importance_sampling_mode": "sequence_mask", )"
       R"("vllm_importance_sampling_clip_max": 3.0})"},
      {"trl_geometric_mask", R"({"vllm_importance_sampling_mode": )"
                             R"("sequence_geometric_mean_mask", )"
                             R"("vllm_importance_sampling_clip_max": 3.0})"},
      {"opsm", R"({"off_policy_mask_threshold": 0.5, )"
               R"("vllm_importance_sampling_correction": false})"},
      {"skyrl_token_tis",
       R"({"vllm_importance_sampling_mode": "token_truncate", )"
       R"("vllm_importance_sampling_clip_max": 2.0})",
       {differences::kUnclamped}},
      {"skyrl_sequence_tis",
       R"({"vllm_importance_sampling_mode": "sequence_truncate", )"
       R"("vllm_importance_sampling_clip_max": 5.0})",
       {differences::kUnclamped}},
      {"openrlhf_tis", R"({"vllm_importance_sampling_mode": "token_truncate", )"
                       R"("vllm_importance_sampling_clip_min": 0.5, )"
                       R"("vllm_importance_sampling_clip_max": 5.0})"},
      {"openrlhf_icepop", R"({"vllm_importance_sampling_mode": "token_mask", )"
                          R"("vllm_importance_sampling_clip_min": 0.5, )"
                          R"("vllm_importance_sampling_clip_max": 5.0})"},
      {"ppo_clip",
       R"({"loss_type": "dapo", "epsilon": 0.2, "delta": 3.0, )"
       R"("vllm_importance_sampling_correction": false})",
       {differences::kUnclamped}},
      {"ppo_two_sided",
       R"({"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": )"
       R"(0.2, "delta": 4.0, "vllm_importance_sampling_correction": )"
       R"(false})"},
      {"dapo",
       R"({"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": )"
       R"(0.28, "vllm_importance_sampling_correction": false})",
       {differences::kUnclamped}},
      {"grpo",
       R"({"loss_type": "grpo", "epsilon": 0.2, )"
       R"("vllm_importance_sampling_correction": false})",
       {differences::kUnclamped, differences::kAllRows}},
      {"gspo",
       R"({"loss_type": "grpo", "importance_sampling_level": )"
       R"("sequence", "epsilon": 0.0003, "epsilon_high": 0.0004, )"
       R"("vllm_importance_sampling_correction": false})",
       {differences::kAllRows}},
      {"luspo",
       R"({"loss_type": "luspo", "importance_sampling_level": )"
       R"("sequence", "epsilon": 0.002, "epsilon_high": 0.0025, )"
       R"("vllm_importance_sampling_correction": false})",
       {differences::kAllRows}},
      {"vespo",
       R"({"loss_type": "vespo", "vespo_k_pos": 2.0, )"
       R"("vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0, )"
       R"("vespo_lambda_neg": 2.0, )"
       R"("vllm_importance_sampling_correction": false})",
       {"it takes one advantage per row"}},
      {"cispo",
       R"({"loss_type": "cispo", "epsilon_high": 5.0, )"
       R"("vllm_importance_sampling_correction": false})",
       {differences::kUnclamped}},
      {"sapo",
       R"({"loss_type": "sapo", "sapo_temperature_pos": 1.0, )"
       R"("sapo_temperature_neg": 1.05, )"
       R"("vllm_importance_sampling_correction": false})",
       {differences::kUnclamped, differences::kAllRows}},
      {"token_tis_ppo_clip",
       R"({"vllm_importance_sampling_mode": "token_truncate", )"
       R"("vllm_importance_sampling_clip_max": 2.0, "loss_type": )"
       R"("dapo", "epsilon": 0.2, "delta": 3.0})",
       {differences::kUnclamped}},
  };
}

}  // namespace counterweight::server
