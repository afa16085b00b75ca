#include "server/engine/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> ArealEquivalents() {
  return {
      {"token_tis",
       R"({"use_decoupled_loss": true, "rejection_sampling": )"
       R"({"action": "clamp", "upper": 2.0}})",
       {differences::kUnclamped}},
      {"none", R"({"use_decoupled_loss": true})"},
      {"trl_token_truncate",
       R"({"use_decoupled_loss": true, "rejection_sampling": )"
       R"({"action": "clamp", "upper": 3.0}})"},
      {"skyrl_token_tis",
       R"({"use_decoupled_loss": true, "rejection_sampling": )"
       R"({"action": "clamp", "upper": 2.0}})",
       {differences::kUnclamped}},
      {"openrlhf_tis", R"({"use_decoupled_loss": true, "rejection_sampling": )"
                       R"({"action": "clamp", "upper": 5.0, "lower": 0.5}})"},
      {"ppo_clip",
       R"({"use_decoupled_loss": true, "c_clip": 3.0})",
       {differences::kUnclamped}},
      {"dapo",
       R"({"use_decoupled_loss": true, "eps_clip_higher": 0.28})",
       {differences::kUnclamped}},
      {"cispo",
       R"({"use_decoupled_loss": true, "use_cispo_loss": true, )"
       R"("eps_clip": 1.0, "eps_clip_higher": 4.0})",
       {differences::kUnclamped}},
      {"token_tis_ppo_clip",
       R"({"use_decoupled_loss": true, "rejection_sampling": )"
       R"({"action": "clamp", "upper": 2.0}, "c_clip": 3.0})",
       {differences::kUnclamped}},
  };
}

}  // namespace counterweight::server
