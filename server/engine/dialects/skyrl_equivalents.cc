#include "server/engine/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> SkyrlEquivalents() {
  return {
      {"token_tis", R"({"off_policy_correction": {"tis_ratio_type": "token", )"
                    R"("token_tis_ratio_clip_high": 2.0}})"},
      {"seq_tis", R"({"off_policy_correction": {"tis_ratio_type": "sequence", )"
                  R"("sequence_tis_ratio_clip_high": 2.0}})"},
      {"none", R"({})"},
      {"seq_mis",
       R"({"off_policy_correction": {"tis_ratio_type": "sequence", )"
       R"("sequence_tis_ratio_clip_high": 2.0, )"
       R"("sequence_mask_metric": "product", "product_mask_low": )"
       R"(0.5, "product_mask_high": 2.0}})",
       {differences::kClampedAggregate}},
      {"geo_rs",
       R"({"off_policy_correction": {"sequence_mask_metric": )"
       R"("geometric", "geo_mask_low": 0.999, "geo_mask_high": )"
       R"(1.001}})",
       {differences::kClampedAggregate}},
      {"geo_rs_seq_tis",
       R"({"off_policy_correction": {"tis_ratio_type": "sequence", )"
       R"("sequence_tis_ratio_clip_high": 2.0, )"
       R"("sequence_mask_metric": "geometric", "geo_mask_low": )"
       R"(0.999, "geo_mask_high": 1.001}})",
       {differences::kClampedAggregate}},
      {"geo_rs_token_tis",
       R"({"off_policy_correction": {"tis_ratio_type": "token", )"
       R"("token_tis_ratio_clip_high": 2.0, "sequence_mask_metric": )"
       R"("geometric", "geo_mask_low": 0.999, "geo_mask_high": )"
       R"(1.001}})",
       {differences::kClampedAggregate}},
      {"trl_token_truncate",
       R"({"off_policy_correction": {"tis_ratio_type": "token", )"
       R"("token_tis_ratio_clip_high": 3.0}})",
       {differences::kClamped}},
      {"trl_sequence_truncate",
       R"({"off_policy_correction": {"tis_ratio_type": "sequence", )"
       R"("sequence_tis_ratio_clip_high": 3.0}})",
       {differences::kClamped}},
      {"skyrl_token_tis",
       R"({"off_policy_correction": {"tis_ratio_type": "token", )"
       R"("token_tis_ratio_clip_high": 2.0}})"},
      {"skyrl_sequence_tis",
       R"({"off_policy_correction": {"tis_ratio_type": "sequence", )"
       R"("sequence_tis_ratio_clip_high": 5.0}})"},
      {"skyrl_geometric_mask",
       R"({"off_policy_correction": {"sequence_mask_metric": )"
       R"("geometric", "geo_mask_low": 0.99, "geo_mask_high": 1.01}})"},
      {"skyrl_product_mask",
       R"({"off_policy_correction": {"sequence_mask_metric": )"
       R"("product", "product_mask_low": 0.5, "product_mask_high": )"
       R"(2.0}})"},
      {"skyrl_token_mask",
       R"({"off_policy_correction": {"token_mask_is_threshold_low": )"
       R"(0.5, "token_mask_is_threshold_high": 2.0}})"},
      {"skyrl_outlier_mask", R"({"off_policy_correction": )"
                             R"({"outlier_token_is_threshold_low": 0.0001, )"
                             R"("outlier_token_is_threshold_high": 100.0}})"},
      {"ppo_clip", R"({"policy_loss_type": "dual_clip", "eps_clip_low": 0.2, )"
                   R"("eps_clip_high": 0.2, "clip_ratio_c": 3.0, )"
                   R"("loss_reduction": "token_mean"})"},
      {"ppo_two_sided",
       R"({"policy_loss_type": "dual_clip", "eps_clip_low": 0.2, )"
       R"("eps_clip_high": 0.2, "clip_ratio_c": 4.0, )"
       R"("loss_reduction": "token_mean"})",
       {differences::kClamped}},
      {"dapo", R"({"policy_loss_type": "regular", "eps_clip_low": 0.2, )"
               R"("eps_clip_high": 0.28, "loss_reduction": "token_mean"})"},
      {"grpo",
       R"({"policy_loss_type": "regular", "eps_clip_low": 0.2, )"
       R"("eps_clip_high": 0.2, "loss_reduction": "sequence_mean"})",
       {differences::kAllRows}},
      {"gspo",
       R"({"policy_loss_type": "gspo", "eps_clip_low": 0.0003, )"
       R"("eps_clip_high": 0.0004, "loss_reduction": )"
       R"("sequence_mean"})",
       {differences::kTokenGradient, differences::kCappedMean,
        differences::kAllRows}},
      {"gspo_token",
       R"({"policy_loss_type": "gspo", "eps_clip_low": 0.0003, )"
       R"("eps_clip_high": 0.0004, "loss_reduction": )"
       R"("sequence_mean"})",
       {differences::kCappedMean, differences::kAllRows}},
      {"cispo", R"({"policy_loss_type": "cispo", "cispo": )"
                R"({"cispo_eps_clip_low": 1.0, "cispo_eps_clip_high": 4.0}, )"
                R"("loss_reduction": "token_mean"})"},
      {"rollout_is",
       R"({"policy_loss_type": "rollout_is", "eps_clip_low": 0.2, )"
       R"("eps_clip_high": 0.2, "loss_reduction": "token_mean"})"},
      {"sapo",
       R"({"policy_loss_type": "sapo", "sapo": {"tau_pos": 1.0, )"
       R"("tau_neg": 1.05}, "loss_reduction": "sequence_mean"})",
       {differences::kAllRows}},
      {"importance_sampling", R"({"policy_loss_type": "importance_sampling", )"
                              R"("loss_reduction": "token_mean"})"},
      {"cross_entropy", R"({"policy_loss_type": "cross_entropy"})"},
      {"token_tis_ppo_clip",
       R"({"off_policy_correction": {"tis_ratio_type": "token", )"
       R"("token_tis_ratio_clip_high": 2.0}, "policy_loss_type": )"
       R"("dual_clip", "eps_clip_low": 0.2, "eps_clip_high": 0.2, )"
       R"("clip_ratio_c": 3.0, "loss_reduction": "token_mean"})"},
      {"geo_rs_token_tis_ppo_clip",
       R"({"off_policy_correction": {"tis_ratio_type": "token", )"
       R"("token_tis_ratio_clip_high": 2.0, "sequence_mask_metric": )"
       R"("geometric", "geo_mask_low": 0.999, "geo_mask_high": )"
       R"(1.001}, "policy_loss_type": "dual_clip", "eps_clip_low": )"
       R"(0.2, "eps_clip_high": 0.2, "clip_ratio_c": 3.0, )"
       R"("loss_reduction": "token_mean"})",
       {differences::kClampedAggregate}},
  };
}

}  // namespace counterweight::server
