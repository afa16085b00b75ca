#include "server/engine/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> VerlEquivalents() {
  return {
      {"token_tis", R"({"rollout_is": "token", "rollout_is_threshold": 2.0})"},
      {"seq_tis", R"({"rollout_is": "sequence", "rollout_is_threshold": 2.0})"},
      {"icepop",
       R"({"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"})"},
      {"none", R"({})"},
      {"seq_mis", R"({"rollout_is": "sequence", "rollout_is_threshold": 2.0, )"
                  R"("rollout_rs": "seq_sum_k1", "rollout_rs_threshold": )"
                  R"("0.5_2.0"})"},
      {"geo_rs",
       R"({"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": )"
       R"("0.999000999000999_1.001001001001001"})",
       {differences::kReciprocals}},
      {"geo_rs_seq_tis",
       R"({"rollout_is": "sequence", "rollout_is_threshold": 2.0, )"
       R"("rollout_rs": "seq_mean_k1", "rollout_rs_threshold": )"
       R"("0.999000999000999_1.001001001001001"})",
       {differences::kReciprocals}},
      {"geo_rs_token_tis",
       R"({"rollout_is": "token", "rollout_is_threshold": 2.0, )"
       R"("rollout_rs": "seq_mean_k1", "rollout_rs_threshold": )"
       R"("0.999000999000999_1.001001001001001"})",
       {differences::kReciprocals}},
      {"k3_rs", R"({"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": )"
                R"(0.01})"},
      {"k3_rs_seq_tis",
       R"({"rollout_is": "sequence", "rollout_is_threshold": 2.0, )"
       R"("rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01})"},
      {"k3_rs_token_tis",
       R"({"rollout_is": "token", "rollout_is_threshold": 2.0, )"
       R"("rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01})"},
      {"bypass_ppo_clip", R"({"bypass_mode": true, "loss_type": "ppo_clip"})"},
      {"bypass_ppo_clip_geo_rs",
       R"({"bypass_mode": true, "loss_type": "ppo_clip", )"
       R"("rollout_rs": "seq_mean_k1", "rollout_rs_threshold": )"
       R"("0.999000999000999_1.001001001001001"})",
       {differences::kReciprocals}},
      {"bypass_ppo_clip_k3_rs",
       R"({"bypass_mode": true, "loss_type": "ppo_clip", )"
       R"("rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01})"},
      {"bypass_seq_tis",
       R"({"bypass_mode": true, "loss_type": "reinforce", )"
       R"("rollout_is": "sequence", "rollout_is_threshold": 2.0})"},
      {"bypass_icepop",
       R"({"bypass_mode": true, "loss_type": "reinforce", )"
       R"("rollout_is": "token", "rollout_is_threshold": "0.5_5.0"})"},
      {"bypass_geo_rs",
       R"({"bypass_mode": true, "loss_type": "reinforce", )"
       R"("rollout_rs": "seq_mean_k1", "rollout_rs_threshold": )"
       R"("0.999000999000999_1.001001001001001"})",
       {differences::kReciprocals}},
      {"bypass_geo_rs_seq_tis",
       R"({"bypass_mode": true, "loss_type": "reinforce", )"
       R"("rollout_is": "sequence", "rollout_is_threshold": 2.0, )"
       R"("rollout_rs": "seq_mean_k1", "rollout_rs_threshold": )"
       R"("0.999000999000999_1.001001001001001"})",
       {differences::kReciprocals}},
      {"bypass_geo_rs_token_tis",
       R"({"bypass_mode": true, "loss_type": "reinforce", )"
       R"("rollout_is": "token", "rollout_is_threshold": 2.0, )"
       R"("rollout_rs": "seq_mean_k1", "rollout_rs_threshold": )"
       R"("0.999000999000999_1.001001001001001"})",
       {differences::kReciprocals}},
      {"trl_token_truncate",
       R"({"rollout_is": "token", "rollout_is_threshold": 3.0})",
       {differences::kClamped}},
      {"trl_sequence_truncate",
       R"({"rollout_is": "sequence", "rollout_is_threshold": 3.0})",
       {differences::kClamped}},
      {"skyrl_token_tis",
       R"({"rollout_is": "token", "rollout_is_threshold": 2.0})"},
      {"skyrl_sequence_tis",
       R"({"rollout_is": "sequence", "rollout_is_threshold": 5.0})"},
      {"skyrl_geometric_mask",
       R"({"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": )"
       R"("0.9900990099009901_1.0101010101010102"})",
       {differences::kReciprocals, differences::kClampedTokens}},
      {"skyrl_product_mask",
       R"({"rollout_rs": "seq_sum_k1", "rollout_rs_threshold": )"
       R"("0.5_2.0"})",
       {differences::kClampedTokens}},
      {"skyrl_token_mask",
       R"({"rollout_rs": "token_k1", "rollout_rs_threshold": )"
       R"("0.5_2.0"})"},
      {"openrlhf_icepop",
       R"({"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"})"},
      {"ppo_clip", R"({"policy_loss": {"loss_mode": "vanilla", )"
                   R"("clip_ratio_low": 0.2, "clip_ratio_high": 0.2, )"
                   R"("clip_ratio_c": 3.0, "loss_agg_mode": "token-mean"}})"},
      {"ppo_two_sided",
       R"({"policy_loss": {"loss_mode": "vanilla", )"
       R"("clip_ratio_low": 0.2, "clip_ratio_high": 0.2, )"
       R"("clip_ratio_c": 4.0, "loss_agg_mode": "token-mean"}})",
       {differences::kClamped}},
      {"dapo", R"({"policy_loss": {"loss_mode": "vanilla", )"
               R"("clip_ratio_low": 0.2, "clip_ratio_high": 0.28, )"
               R"("clip_ratio_c": 1e9, "loss_agg_mode": "token-mean"}})"},
      {"grpo", R"({"policy_loss": {"loss_mode": "vanilla", )"
               R"("clip_ratio_low": 0.2, "clip_ratio_high": 0.2, )"
               R"("clip_ratio_c": 1e9, "loss_agg_mode": )"
               R"("seq-mean-token-mean"}})"},
      {"clip_cov", R"({"policy_loss": {"loss_mode": "clip_cov", )"
                   R"("clip_ratio_low": 0.2, "clip_ratio_high": 0.2, )"
                   R"("clip_cov_ratio": 0.0002, "clip_cov_lb": 1.0, )"
                   R"("clip_cov_ub": 5.0, "loss_agg_mode": "token-mean"}})"},
      {"kl_cov", R"({"policy_loss": {"loss_mode": "kl_cov", "kl_cov_ratio": )"
                 R"(0.0002, "ppo_kl_coef": 1.0, "loss_agg_mode": )"
                 R"("token-mean"}})"},
      {"gspo",
       R"({"policy_loss": {"loss_mode": "gspo", "loss_agg_mode": )"
       R"("seq-mean-token-mean", "clip_ratio_low": 0.0003, )"
       R"("clip_ratio_high": 0.0004}})",
       {differences::kTokenGradient, differences::kCappedMean}},
      {"gspo_token",
       R"({"policy_loss": {"loss_mode": "gspo", "loss_agg_mode": )"
       R"("seq-mean-token-mean", "clip_ratio_low": 0.0003, )"
       R"("clip_ratio_high": 0.0004}})",
       {differences::kCappedMean}},
      {"geo_mean",
       R"({"policy_loss": {"loss_mode": "geo_mean", )"
       R"("clip_ratio_low": 0.4, "clip_ratio_high": 0.4}})",
       {differences::kAllRows}},
      {"cispo", R"({"policy_loss": {"loss_mode": "cispo", "clip_ratio_low": )"
                R"(1.0, "clip_ratio_high": 4.0, "loss_agg_mode": )"
                R"("token-mean"}})"},
      {"sapo", R"({"policy_loss": {"loss_mode": "sapo", "tau_pos": 1.0, )"
               R"("tau_neg": 1.05}})"},
      {"dppo_tv", R"({"policy_loss": {"loss_mode": "dppo_tv", )"
                  R"("clip_ratio_low": 0.15, "clip_ratio_high": 0.15, )"
                  R"("clip_ratio_c": 3.0, "loss_agg_mode": "token-mean"}})"},
      {"dppo_kl", R"({"policy_loss": {"loss_mode": "dppo_kl", )"
                  R"("clip_ratio_low": 0.05, "clip_ratio_high": 0.05, )"
                  R"("clip_ratio_c": 3.0, "loss_agg_mode": "token-mean"}})"},
      {"dro", R"({"policy_loss": {"loss_mode": "dro", "dro_beta": 0.05, )"
              R"("loss_agg_mode": "token-mean"}})"},
      {"reinforce", R"({"bypass_mode": true, "policy_loss": {"loss_mode": )"
                    R"("reinforce", "loss_agg_mode": "token-mean"}})"},
      {"gpg", R"({"policy_loss": {"loss_mode": "gpg", "loss_agg_mode": )"
              R"("token-mean"}})"},
      {"token_tis_ppo_clip",
       R"({"rollout_is": "token", "rollout_is_threshold": 2.0, )"
       R"("policy_loss": {"loss_mode": "vanilla", "clip_ratio_low": )"
       R"(0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0, )"
       R"("loss_agg_mode": "token-mean"}})"},
      {"bypass_token_tis_reinforce",
       R"({"bypass_mode": true, "loss_type": "reinforce", )"
       R"("rollout_is": "token", "rollout_is_threshold": 2.0, )"
       R"("policy_loss": {"loss_agg_mode": "token-mean"}})"},
      {"bypass_seq_tis_reinforce",
       R"({"bypass_mode": true, "loss_type": "reinforce", )"
       R"("rollout_is": "sequence", "rollout_is_threshold": 2.0, )"
       R"("policy_loss": {"loss_agg_mode": "token-mean"}})"},
  };
}

}  // namespace counterweight::server
