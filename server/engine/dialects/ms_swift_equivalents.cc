#include "server/engine/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> MsSwiftEquivalents() {
  return {
      {"token_tis", R"({"beta": 0.0, "rollout_importance_sampling_mode": )"
                    R"("token_truncate", )"
                    R"("rollout_importance_sampling_threshold": 2.0})"},
      {"none", R"({"beta": 0.0})"},
      {"trl_token_truncate",
       R"({"beta": 0.0, "rollout_importance_sampling_mode": )"
       R"("token_truncate", )"
       R"("rollout_importance_sampling_threshold": 3.0})",
       {differences::kClamped}},
      {"trl_token_mask",
       R"({"beta": 0.0, "rollout_importance_sampling_mode": )"
       R"("token_mask", "rollout_importance_sampling_threshold": )"
       R"(3.0})",
       {differences::kClamped}},
      {"skyrl_token_tis",
       R"({"beta": 0.0, "rollout_importance_sampling_mode": )"
       R"("token_truncate", )"
       R"("rollout_importance_sampling_threshold": 2.0})"},
      {"ppo_clip",
       R"({"beta": 0.0, "loss_type": "dapo", "delta": 3.0})",
       {differences::kUnclamped}},
      {"ppo_two_sided", R"({"beta": 0.0, "loss_type": "dapo", "delta": 4.0})"},
      {"dapo",
       R"({"beta": 0.0, "loss_type": "dapo", "epsilon_high": 0.28})",
       {differences::kUnclamped}},
      {"grpo",
       R"({"beta": 0.0})",
       {differences::kUnclamped, differences::kAllRows}},
      {"gspo",
       R"({"beta": 0.0, "importance_sampling_level": "sequence", )"
       R"("epsilon": 0.0003, "epsilon_high": 0.0004})",
       {differences::kAllRows}},
      {"gspo_token",
       R"({"beta": 0.0, "importance_sampling_level": )"
       R"("sequence_token", "epsilon": 0.0003, "epsilon_high": )"
       R"(0.0004})",
       {differences::kAllRows}},
      {"cispo",
       R"({"beta": 0.0, "loss_type": "cispo", "epsilon_high": 5.0})",
       {differences::kUnclamped}},
      {"sapo",
       R"({"beta": 0.0, "loss_type": "sapo"})",
       {differences::kUnclamped, differences::kAllRows}},
      {"token_tis_ppo_clip",
       R"({"beta": 0.0, "rollout_importance_sampling_mode": )"
       R"("token_truncate", )"
       R"("rollout_importance_sampling_threshold": 2.0, )"
       R"("loss_type": "dapo", "delta": 3.0})",
       {differences::kUnclamped}},
  };
}

}  // namespace counterweight::server
