#include "server/engine/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> OpenrlhfEquivalents() {
  return {
      {"token_tis",
       R"({"is_correction_level": "token", "is_correction_mode": )"
       R"("clip", "is_correction_threshold": [0.0, 2.0]})",
       {differences::kUnclamped}},
      {"icepop", R"({"is_correction_level": "token", "is_correction_mode": )"
                 R"("mask", "is_correction_threshold": [0.5, 5.0]})"},
      {"none", R"({})"},
      {"trl_token_truncate",
       R"({"is_correction_level": "token", "is_correction_mode": )"
       R"("clip", "is_correction_threshold": [0.0, 3.0]})"},
      {"trl_token_mask",
       R"({"is_correction_level": "token", "is_correction_mode": )"
       R"("mask", "is_correction_threshold": [0.0, 3.0]})"},
      {"skyrl_token_tis",
       R"({"is_correction_level": "token", "is_correction_mode": )"
       R"("clip", "is_correction_threshold": [0.0, 2.0]})",
       {differences::kUnclamped}},
      {"openrlhf_tis",
       R"({"is_correction_level": "token", "is_correction_mode": )"
       R"("clip", "is_correction_threshold": [0.5, 5.0]})"},
      {"openrlhf_icepop",
       R"({"is_correction_level": "token", "is_correction_mode": )"
       R"("mask", "is_correction_threshold": [0.5, 5.0]})"},
      {"openrlhf_seq_mask_tis",
       R"({"is_correction_level": "seq", "is_correction_mode": )"
       R"("mask", "is_correction_threshold": [0.5, 5.0]})"},
      {"ppo_clip", R"({"policy_loss_type": "ppo", "eps_clip_low_high": [0.2, )"
                   R"(0.2], "dual_clip": 3.0, "token_level_loss": true})"},
      {"ppo_two_sided",
       R"({"policy_loss_type": "ppo", "eps_clip_low_high": [0.2, )"
       R"(0.2], "dual_clip": 4.0, "token_level_loss": true})",
       {differences::kClamped}},
      {"dapo", R"({"policy_loss_type": "ppo", "eps_clip_low_high": [0.2, )"
               R"(0.28], "token_level_loss": true})"},
      {"grpo", R"({"policy_loss_type": "ppo", "eps_clip_low_high": [0.2, )"
               R"(0.2], "token_level_loss": false})"},
      {"gspo", R"({"policy_loss_type": "gspo", "eps_clip_low_high": )"
               R"([0.0003, 0.0004]})"},
      {"token_tis_ppo_clip",
       R"({"is_correction_level": "token", "is_correction_mode": )"
       R"("clip", "is_correction_threshold": [0.0, 2.0], )"
       R"("policy_loss_type": "ppo", "eps_clip_low_high": [0.2, )"
       R"(0.2], "dual_clip": 3.0, "token_level_loss": true})",
       {"the log ratios of its weights are not clamped at 20 nats"}},
  };
}

}  // namespace counterweight::server
