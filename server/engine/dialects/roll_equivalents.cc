#include "server/engine/equivalents.h"

namespace counterweight::server {

std::vector<Equivalent> RollEquivalents() {
  return {
      {"token_tis",
       R"({"train_infer_correction": {"is_weight": {"enabled": )"
       R"(true, "weight_type": "token", "upper_bound": 2.0}}})",
       {differences::kUnclamped}},
      {"seq_tis",
       R"({"train_infer_correction": {"is_weight": {"enabled": )"
       R"(true, "weight_type": "sequence", "upper_bound": 2.0}}})",
       {differences::kUnclamped}},
      {"none", R"({})"},
      {"seq_mis",
       R"({"train_infer_correction": {"is_weight": {"enabled": )"
       R"(true, "weight_type": "sequence", "upper_bound": 2.0}, )"
       R"("filters": [{"enabled": true, "agg_type": "sequence", )"
       R"("ratio_low": 0.5, "ratio_high": 2.0}]}})",
       {differences::kUnclamped}},
      {"geo_rs",
       R"({"train_infer_correction": {"filters": [{"enabled": true, )"
       R"("agg_type": "geometric", "ratio_low": 0.999, )"
       R"("ratio_high": 1.001}]}})",
       {differences::kUnclamped}},
      {"geo_rs_seq_tis",
       R"({"train_infer_correction": {"is_weight": {"enabled": )"
       R"(true, "weight_type": "sequence", "upper_bound": 2.0}, )"
       R"("filters": [{"enabled": true, "agg_type": "geometric", )"
       R"("ratio_low": 0.999, "ratio_high": 1.001}]}})",
       {differences::kUnclamped}},
      {"geo_rs_token_tis",
       R"({"train_infer_correction": {"is_weight": {"enabled": )"
       R"(true, "weight_type": "token", "upper_bound": 2.0}, )"
       R"("filters": [{"enabled": true, "agg_type": "geometric", )"
       R"("ratio_low": 0.999, "ratio_high": 1.001}]}})",
       {differences::kUnclamped}},
      {"trl_token_truncate",
       R"({"train_infer_correction": {"is_weight": {"enabled": )"
       R"(true, "weight_type": "token", "upper_bound": 3.0}}})"},
      {"trl_sequence_truncate",
       R"({"train_infer_correction": {"is_weight": {"enabled": )"
       R"(true, "weight_type": "sequence", "upper_bound": 3.0}}})"},
      {"skyrl_token_tis",
       R"({"train_infer_correction": {"is_weight": {"enabled": )"
       R"(true, "weight_type": "token", "upper_bound": 2.0}}})",
       {differences::kUnclamped}},
      {"skyrl_sequence_tis",
       R"({"train_infer_correction": {"is_weight": {"enabled": )"
       R"(true, "weight_type": "sequence", "upper_bound": 5.0}}})",
       {differences::kUnclamped}},
      {"skyrl_geometric_mask",
       R"({"train_infer_correction": {"filters": [{"enabled": true, )"
       R"("agg_type": "geometric", "ratio_low": 0.99, "ratio_high": )"
       R"(1.01}]}})"},
      {"skyrl_product_mask",
       R"({"train_infer_correction": {"filters": [{"enabled": true, )"
       R"("agg_type": "sequence", "ratio_low": 0.5, "ratio_high": )"
       R"(2.0}]}})"},
      {"skyrl_token_mask",
       R"({"train_infer_correction": {"filters": [{"enabled": true, )"
       R"("agg_type": "token", "ratio_low": 0.5, "ratio_high": )"
       R"(2.0}]}})"},
      {"dapo",
       R"({"loss_agg_mode": "token-mean", "use_pg_clip_range": )"
       R"(true, "pg_clip_low": 0.2, "pg_clip_high": 0.28})",
       {differences::kUnclamped}},
      {"grpo", R"({})", {differences::kUnclamped}},
      {"gspo", R"({"importance_sampling": "seq", "use_pg_clip_range": true, )"
               R"("pg_clip_low": 0.0003, "pg_clip_high": 0.0004})"},
      {"cispo",
       R"({"loss_agg_mode": "token-mean", "pg_variant": "cispo", )"
       R"("cispo_epsilon_low": 1.0, "cispo_epsilon_high": 4.0})",
       {differences::kUnclamped}},
      {"dro", R"({"loss_agg_mode": "token-mean", "pg_variant": "kimi15", )"
              R"("kimi15_tau": 0.05})"},
      {"reinforce",
       R"({"loss_agg_mode": "token-mean", "pg_variant": "vanilla"})"},
      {"gpg", R"({"loss_agg_mode": "token-mean", "pg_variant": "vanilla"})"},
  };
}

}  // namespace counterweight::server
