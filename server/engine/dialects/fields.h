// The fields that a system's block may have, and the structs in it. Clients
// read only these of a configuration object, which may hold tokens and
// passwords too (dialects_reference.cc prints them).
#ifndef COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_FIELDS_H_
#define COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_FIELDS_H_

#include <string_view>

namespace counterweight::server {

// Fields of RolloutCorrectionConfig, and keys beside it.
inline constexpr std::string_view kVerlLayoutFields[] = {
    "rollout_is",
    "rollout_is_threshold",
    "rollout_is_batch_normalize",
    "rollout_rs",
    "rollout_rs_threshold",
    "bypass_mode",
    "loss_type",
    "preset",
    "policy_loss"};

// Fields of ActorConfig that losses read, and of PolicyLossConfig.
inline constexpr std::string_view kVerlLossFields[] = {
    "loss_mode",      "loss_agg_mode",     "clip_ratio",
    "clip_ratio_low", "clip_ratio_high",   "clip_ratio_c",
    "tau_pos",        "tau_neg",           "clip_cov_ratio",
    "clip_cov_lb",    "clip_cov_ub",       "kl_cov_ratio",
    "ppo_kl_coef",    "dro_beta",          "loss_scale_factor",
    "use_kl_loss",    "kl_loss_coef",      "kl_loss_type",
    "entropy_coeff",  "global_batch_info",
};

inline constexpr std::string_view kVerlCountFields[] = {
    "dp_size", "batch_num_tokens", "global_batch_size"};

// GRPOConfig's fields with an effect on answers, and two counts of TRL's
// trainer, num_items_in_batch and num_processes. The fields since entropy_coef
// concern entropies, the presence of tensors, and the source of
// steps_per_generation.
inline constexpr std::string_view kTrlFields[] = {
    "beta",
    "delta",
    "epsilon",
    "epsilon_high",
    "gradient_accumulation_steps",
    "importance_sampling_level",
    "loss_type",
    "max_completion_length",
    "num_items_in_batch",
    "num_processes",
    "off_policy_mask_threshold",
    "sapo_temperature_neg",
    "sapo_temperature_pos",
    "use_bias_correction_kl",
    "use_liger_kernel",
    "use_vllm",
    "vespo_k_neg",
    "vespo_k_pos",
    "vespo_lambda_neg",
    "vespo_lambda_pos",
    "vllm_importance_sampling_cap",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
    "entropy_coef",
    "entropy_coef_delta",
    "entropy_coef_max",
    "entropy_coef_min",
    "entropy_target",
    "top_entropy_quantile",
    "use_adaptive_entropy",
    "num_iterations",
    "generation_batch_size",
    "per_device_train_batch_size",
    "steps_per_generation"};

// AlgorithmConfig's fields; the second group has no effect on weights, masks
// and losses of given tensors. The last two are arguments of SkyRL's calls.
inline constexpr std::string_view kSkyrlFields[] = {
    "cispo", "clip_cov", "clip_ratio_c", "dppo", "entropy_loss_coef",
    "eps_clip_high", "eps_clip_low", "kl_cov", "kl_estimator_type",
    "kl_loss_coef", "loss_reduction", "max_seq_len", "off_policy_correction",
    "policy_loss_type", "sapo", "tis_imp_ratio_cap", "use_entropy_loss",
    "use_kl_in_reward", "use_kl_loss", "use_tis",
    //
    "advantage_batch_normalize", "advantage_estimator", "dynamic_sampling",
    "enable_sample_support_replay", "gamma", "grpo_norm_by_std", "kl_ctrl",
    "lambd", "temperature", "value_clip", "value_head_prefix",
    "zero_variance_filter", "zero_variance_filter_tol",
    //
    "micro_batch_size", "prompt_boundaries"};

inline constexpr std::string_view kSkyrlCorrectionFields[] = {
    "geo_mask_high",
    "geo_mask_low",
    "outlier_token_is_threshold_high",
    "outlier_token_is_threshold_low",
    "product_mask_high",
    "product_mask_low",
    "sequence_mask_metric",
    "sequence_tis_ratio_clip_high",
    "tis_ratio_type",
    "token_mask_is_threshold_high",
    "token_mask_is_threshold_low",
    "token_tis_ratio_clip_high"};

inline constexpr std::string_view kSkyrlSapoFields[] = {"tau_neg", "tau_pos"};

inline constexpr std::string_view kSkyrlCispoFields[] = {
    "cispo_anchor", "cispo_eps_clip_high", "cispo_eps_clip_low"};

inline constexpr std::string_view kSkyrlDppoFields[] = {
    "delta_high", "delta_low", "dppo_type"};

inline constexpr std::string_view kSkyrlClipCovFields[] = {
    "clip_cov_lb", "clip_cov_ub", "clip_ratio"};

inline constexpr std::string_view kSkyrlKlCovFields[] = {"kl_cov_frac",
                                                         "ppo_kl_coef"};

// Arguments of PolicyLoss and of its call, and the fields of algo.kl and the
// actor that the actor's loss reads; the correction's are beside them.
inline constexpr std::string_view kOpenrlhfFields[] = {
    "batch_num_tokens",  "dp_size",          "dual_clip",
    "entropy_loss_coef", "eps_clip",         "eps_clip_low_high",
    "global_batch_size", "init_kl_coef",     "kl_estimator",
    "policy_loss_type",  "token_level_loss", "unbiased_gradient",
    "use_kl_loss"};

inline constexpr std::string_view kOpenrlhfOldFields[] = {
    "enable_vllm_is_correction", "vllm_is_correction_type",
    "vllm_is_truncated_threshold"};

// The old command line had the threshold's name too.
inline constexpr std::string_view kOpenrlhfNewFields[] = {
    "is_correction_level", "is_correction_mode", "is_correction_gating",
    "loss_agg_mode", "is_correction_threshold"};

// slime's arguments with an effect on answers, and those of them that only
// refuse; the fields of its MIS example; and two facts of the call,
// rollout_mask_sums and step_global_batch_size.
inline constexpr std::string_view kSlimeFields[] = {
    "advantage_estimator",
    "calculate_per_token_loss",
    "custom_pg_loss_reducer_function_path",
    "custom_tis_function_path",
    "entropy_coef",
    "eps_clip",
    "eps_clip_c",
    "eps_clip_high",
    "get_mismatch_metrics",
    "kl_coef",
    "kl_loss_coef",
    "kl_loss_type",
    "opsm_delta",
    "rollout_mask_sums",
    "rs_level",
    "rs_lower_bound",
    "rs_upper_bound",
    "rs_veto_threshold",
    "step_global_batch_size",
    "tis_batch_normalize",
    "tis_clip",
    "tis_clip_low",
    "tis_level",
    "tis_lower_bound",
    "tis_mode",
    "tis_upper_bound",
    "use_kl_loss",
    "use_opd",
    "use_opsm",
    "use_rollout_logprobs",
    "use_rs",
    "use_tis",
    "use_unbiased_kl"};

// miles has these too.
inline constexpr std::string_view kMilesFields[] = {"skip_actor_forward_only"};

// ClippedPGLossFn's configuration, a field of NeMo RL's GRPO that filters
// before it, and two facts of the call, global_valid_seqs and
// global_valid_toks.
inline constexpr std::string_view kNemoRlFields[] = {
    "disable_ppo_ratio",
    "force_on_policy_ratio",
    "global_valid_seqs",
    "global_valid_toks",
    "kl_input_clamp_value",
    "kl_output_clamp_value",
    "positive_example_nll_weight",
    "ratio_clip_c",
    "ratio_clip_max",
    "ratio_clip_min",
    "reference_policy_kl_penalty",
    "reference_policy_kl_type",
    "seq_logprob_error_threshold",
    "sequence_level_importance_ratios",
    "token_level_loss",
    "truncated_importance_sampling_ratio",
    "truncated_importance_sampling_ratio_min",
    "truncated_importance_sampling_type",
    "use_cispo",
    "use_importance_sampling_correction",
    "use_kl_in_reward",
    "use_on_policy_kl_approximation"};

// GRPO's arguments in ms-swift with an effect on answers, those of refused
// losses, and four facts of the call: backend, dp_size, num_items_in_batch and
// num_microbatches.
inline constexpr std::string_view kMsSwiftFields[] = {
    "backend",
    "beta",
    "delta",
    "dp_size",
    "epsilon",
    "epsilon_high",
    "fipo_clip_high_only",
    "fipo_clip_range",
    "fipo_decay_rate",
    "fipo_safety_threshold",
    "gradient_accumulation_steps",
    "importance_sampling_level",
    "log_rollout_offpolicy_metrics",
    "loss_type",
    "max_completion_length",
    "num_generations",
    "num_items_in_batch",
    "num_microbatches",
    "off_policy_sequence_mask_delta",
    "real_tau",
    "rollout_importance_sampling_mode",
    "rollout_importance_sampling_threshold",
    "tau_neg",
    "tau_pos"};

// compute_loss's configuration in prime-rl, and two facts of the call, rl_scale
// and ref_kl_scale.
inline constexpr std::string_view kPrimeRlFields[] = {
    "adv_tau", "dppo_mask_high", "dppo_mask_low", "ipo_threshold",
    "kl_tau",  "ref_kl_scale",   "rl_scale",      "type"};

// PPOActorConfig's fields that losses read in AReaL, and a fact of the call,
// current_version.
inline constexpr std::string_view kArealFields[] = {"c_clip",
                                                    "current_version",
                                                    "eps_clip",
                                                    "eps_clip_higher",
                                                    "importance_sampling_level",
                                                    "m2_threshold",
                                                    "prox_logp_method",
                                                    "recompute_logprob",
                                                    "rejection_sampling",
                                                    "sapo_tau_neg",
                                                    "sapo_tau_pos",
                                                    "use_cispo_loss",
                                                    "use_decoupled_loss",
                                                    "use_sapo_loss"};
// The node of the actor in AReaL's own tree.
inline constexpr std::string_view kArealActor = "actor";
inline constexpr std::string_view kArealRejectionFields[] = {
    "action", "agg", "level", "lower", "metric", "upper"};

// ROLL's fields of losses, and those of them that are refused;
// train_infer_correction, its is_weight, and one of its filters; actor_train,
// which has the variant in ROLL's own tree.
inline constexpr std::string_view kRollFields[] = {
    "actor_train",
    "cispo_epsilon_high",
    "cispo_epsilon_low",
    "cispo_use_unified_mask",
    "difficulty_loss_weight",
    "dual_clip_loss",
    "enable_old_logprobs_recompute",
    "entropy_loss_coef",
    "importance_sampling",
    "kimi15_tau",
    "kl_loss_coef",
    "length_loss_weight",
    "loss_agg_mode",
    "pg_clip",
    "pg_clip_high",
    "pg_clip_low",
    "pg_variant",
    "ratio_type",
    "rl_loss_coef",
    "tis_lower_bound",
    "tis_upper_bound",
    "train_infer_correction",
    "use_kl_loss",
    "use_pg_clip_range"};
inline constexpr std::string_view kRollActorFields[] = {"pg_variant",
                                                        "worker_cls"};
inline constexpr std::string_view kRollCorrectionFields[] = {"filters",
                                                             "is_weight"};
inline constexpr std::string_view kRollWeightFields[] = {
    "detach", "enabled", "upper_bound", "weight_type"};
inline constexpr std::string_view kRollFilterFields[] = {
    "agg_type", "diff_enabled",  "diff_high",  "diff_low",
    "enabled",  "ratio_enabled", "ratio_high", "ratio_low"};

// Arguments of Tinker's forward_backward, and fields of loss_fn_config.
inline constexpr std::string_view kTinkerFields[] = {"loss_fn",
                                                     "loss_fn_config"};
inline constexpr std::string_view kTinkerConfigFields[] = {
    "beta", "clip_high_threshold", "clip_low_threshold"};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_DIALECTS_FIELDS_H_
