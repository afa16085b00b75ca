#include "server/engine/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> SlimeEquivalents() {
  return {
      {"token_tis",
       R"({"use_tis": true, "tis_clip": 2.0})",
       {differences::kUnclamped}},
      {"seq_tis",
       R"({"use_tis": true, "custom_tis_function_path": )"
       R"("examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp", )"
       R"("tis_mode": "truncate", "tis_level": "sequence", )"
       R"("tis_upper_bound": 2.0})"},
      {"icepop", R"({"use_tis": true, "tis_clip": 5.0, "tis_clip_low": 0.5, )"
                 R"("custom_tis_function_path": )"
                 R"("slime.backends.megatron_utils.loss.icepop_function"})"},
      {"none", R"({})"},
      {"seq_mis",
       R"({"use_tis": true, "custom_tis_function_path": )"
       R"("examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp", )"
       R"("tis_mode": "truncate", "tis_level": "sequence", )"
       R"("tis_upper_bound": 2.0, "use_rs": true, "rs_level": )"
       R"("sequence", "rs_lower_bound": 0.5, "rs_upper_bound": 2.0})",
       {differences::kClampedAggregate}},
      {"geo_rs_seq_tis",
       R"({"use_tis": true, "custom_tis_function_path": )"
       R"("examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp", )"
       R"("tis_mode": "truncate", "tis_level": "sequence", )"
       R"("tis_upper_bound": 2.0, "use_rs": true, "rs_level": )"
       R"("geometric", "rs_lower_bound": 0.999, "rs_upper_bound": )"
       R"(1.001})",
       {differences::kClampedAggregate}},
      {"geo_rs_token_tis",
       R"({"use_tis": true, "custom_tis_function_path": )"
       R"("examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp", )"
       R"("tis_mode": "truncate", "tis_level": "token", )"
       R"("tis_upper_bound": 2.0, "use_rs": true, "rs_level": )"
       R"("geometric", "rs_lower_bound": 0.999, "rs_upper_bound": )"
       R"(1.001})",
       {differences::kClampedAggregate}},
      {"trl_token_truncate", R"({"use_tis": true, "tis_clip": 3.0})"},
      {"trl_token_mask",
       R"({"use_tis": true, "tis_clip": 3.0, )"
       R"("custom_tis_function_path": )"
       R"("slime.backends.megatron_utils.loss.icepop_function"})"},
      {"trl_sequence_truncate",
       R"({"use_tis": true, "custom_tis_function_path": )"
       R"("examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp", )"
       R"("tis_mode": "truncate", "tis_level": "sequence", )"
       R"("tis_upper_bound": 3.0})",
       {differences::kClamped}},
      {"skyrl_token_tis",
       R"({"use_tis": true, "tis_clip": 2.0})",
       {differences::kUnclamped}},
      {"skyrl_sequence_tis",
       R"({"use_tis": true, "custom_tis_function_path": )"
       R"("examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp", )"
       R"("tis_mode": "truncate", "tis_level": "sequence", )"
       R"("tis_upper_bound": 5.0})"},
      {"openrlhf_tis",
       R"({"use_tis": true, "tis_clip": 5.0, "tis_clip_low": 0.5})"},
      {"openrlhf_icepop",
       R"({"use_tis": true, "tis_clip": 5.0, "tis_clip_low": 0.5, )"
       R"("custom_tis_function_path": )"
       R"("slime.backends.megatron_utils.loss.icepop_function"})"},
      {"ppo_clip",
       R"({"calculate_per_token_loss": true, "eps_clip_c": 3.0})",
       {differences::kUnclamped, differences::kEmptyRowIsToken}},
      {"dapo",
       R"({"calculate_per_token_loss": true, "eps_clip_high": 0.28})",
       {differences::kUnclamped, differences::kEmptyRowIsToken}},
      {"grpo", R"({})", {differences::kUnclamped, differences::kAllRows}},
      {"gspo",
       R"({"advantage_estimator": "gspo", "eps_clip": 0.0003, )"
       R"("eps_clip_high": 0.0004})",
       {differences::kAllRows}},
      {"cispo",
       R"({"calculate_per_token_loss": true, "advantage_estimator": )"
       R"("cispo", "eps_clip": 1.0, "eps_clip_high": 4.0})",
       {differences::kUnclamped, differences::kEmptyRowIsToken}},
      {"token_tis_ppo_clip",
       R"({"use_tis": true, "tis_clip": 2.0, )"
       R"("calculate_per_token_loss": true, "eps_clip_c": 3.0})",
       {differences::kUnclamped, differences::kEmptyRowIsToken}},
  };
}

}  // namespace counterweight::server
