#include "tests/server/dialects/system_blocks.h"

namespace counterweight::server {
namespace {

const SystemBlock kBlocks[] = {
    {.system = "verl",
     .json =
         R"({"rollout_is": "token", "rollout_is_threshold": 2.0, "rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01})",
     .replaced =
         "verl.trainer.ppo.rollout_corr_helper.compute_rollout_correction_and_"
         "add_to_batch",
     .function =
         "counterweight_rl.compat.verl.compute_rollout_correction_and_add_to_"
         "batch",
     .how = "`external_lib: counterweight_rl.hooks.verl` installs it",
     .calls = "one call for each step",
     .has_loss = false,
     .watched = {"rollout_corr/k3_kl",
                 "rollout_corr/rollout_is_eff_sample_size",
                 "rollout_corr/rollout_is_ratio_fraction_high",
                 "rollout_corr/rollout_rs_masked_fraction"}},
    {.system = "trl",
     .json =
         R"({"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": 3.0})",
     .replaced = "trl.GRPOTrainer._compute_loss",
     .function = "counterweight_rl.compat.trl.GRPOMixin",
     .how = "`counterweight_rl.compat.trl.GRPOTrainer` is TRL's class with it",
     .calls = "one call for each micro-batch and rank",
     .has_loss = true,
     .watched = {"sampling/sampling_logp_difference/mean",
                 "sampling/importance_sampling_ratio/mean",
                 "sampling/importance_sampling_ratio/min",
                 "clip_ratio/region_mean"}},
    {.system = "skyrl",
     .json =
         R"({"off_policy_correction": {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0}})",
     .replaced = "SkyRL's loss `regular`",
     .function = "counterweight_rl.hooks.skyrl.install",
     .how = "at import it registers `counterweight_regular`, which "
            "`policy_loss_type` selects",
     .calls = "one call for each micro-batch and rank",
     .has_loss = true,
     .watched = {"policy/rollout_train_logprobs_abs_diff_mean", "is_ratio_mean",
                 "is_ratio_max", "tis_token_clip_high_ratio", "clip_ratio"}},
    {.system = "openrlhf",
     .json =
         R"({"is_correction_level": "token", "is_correction_mode": "clip", "is_correction_threshold": [0.5, 5.0]})",
     .replaced = "openrlhf.models.PolicyLoss",
     .function = "counterweight_rl.compat.openrlhf.PolicyLoss",
     .how = "`worker_process_setup_hook: "
            "counterweight_rl.hooks.openrlhf.install` installs it",
     .calls = "one call for each micro-batch and rank",
     .has_loss = true,
     .watched = {"vllm_kl", "is_filter_ratio", "ppo_kl", "ppo_clip_ratio"}},
    {.system = "slime",
     .json = R"({"use_tis": true, "tis_clip": 2.0})",
     .replaced = "slime.backends.megatron_utils.loss.policy_loss_function",
     .function = "counterweight_rl.compat.slime.policy_loss_function",
     .how =
         "`--loss-type custom_loss --custom-loss-function-path` has its name",
     .calls = "one call for each micro-batch and rank",
     .has_loss = true,
     .watched = {"pg_clipfrac", "pg_loss", "tis", "tis_clipfrac", "ois",
                 "ppo_kl", "train_rollout_logprob_abs_diff"}},
    {.system = "miles",
     .json = R"({"use_tis": true, "tis_clip": 2.0})",
     .replaced =
         "miles.backends.training_utils.loss_hub.losses.policy_loss_function",
     .function = "counterweight_rl.compat.miles.policy_loss_function",
     .how =
         "`--loss-type custom_loss --custom-loss-function-path` has its name",
     .calls = "one call for each micro-batch and rank",
     .has_loss = true,
     .watched = {"pg_clipfrac", "pg_loss", "tis", "tis_clipfrac", "ois",
                 "ppo_kl", "train_rollout_logprob_abs_diff"}},
    {.system = "nemo_rl",
     .json =
         R"({"reference_policy_kl_penalty": 0.0, "use_importance_sampling_correction": true, "truncated_importance_sampling_type": "icepop", "truncated_importance_sampling_ratio": 5.0, "truncated_importance_sampling_ratio_min": 0.5})",
     .replaced = "nemo_rl.algorithms.loss.ClippedPGLossFn",
     .function = "counterweight_rl.compat.nemo_rl.ClippedPGLossFn",
     .how = "the example's script makes it of its `loss_fn` section",
     .calls = "one call for each micro-batch and rank, with "
              "SequencePackingLossWrapper one for each sequence",
     .has_loss = true,
     .watched = {"gen_kl_error", "is_oob_ratio", "sampling_importance_ratio",
                 "probs_ratio", "probs_ratio_clamped"}},
    {.system = "ms_swift",
     .json =
         R"({"rollout_importance_sampling_mode": "token_truncate", "rollout_importance_sampling_threshold": 2.0})",
     .replaced = "swift.rlhf_trainers.grpo_trainer.GRPOTrainer._apply_rollout_"
                 "importance_sampling",
     .function = "counterweight_rl.compat.ms_swift.RolloutCorrectionMixin",
     .how = "a file of `--external_plugins` installs it, or `GRPOLossMixin` or "
            "`MegatronGRPOLossMixin`, which have the whole loss",
     .calls = "one call for each micro-batch and rank",
     .has_loss = false,
     .watched = {"rollout_correction/k3_kl",
                 "rollout_correction/is_weight_mean",
                 "rollout_correction/clipped_frac",
                 "rollout_correction/chi2_token"}},
    {.system = "prime_rl",
     .json =
         R"({"dppo_mask_low": 0.2, "dppo_mask_high": 0.2, "kl_tau": 0.001})",
     .replaced = "prime_rl.trainer.rl.loss.default_loss_fn",
     .function = "counterweight_rl.compat.prime_rl.default_loss_fn",
     .how = "`type = \"custom\"` of `trainer.loss` with its name as "
            "`import_path`, and the block as `kwargs.loss_config`",
     .calls = "one call for each sequence",
     .has_loss = true,
     .watched = {"mismatch_kl/all/mean", "mismatch_kl/all/max"}},
    {.system = "areal",
     .json =
         R"({"use_decoupled_loss": true, "rejection_sampling": {"metric": "ratio", "upper": 5.0}})",
     .replaced = "areal.utils.functional.ppo_actor_loss_fn",
     .function = "counterweight_rl.compat.areal.ppo_actor_loss_fn",
     .how = "an import in the actor's place",
     .calls = "one call for each micro-batch and rank",
     .has_loss = true,
     .watched = {"behave_approx_kl/avg", "behave_imp_weight/max",
                 "rs_filtered_fraction", "clip_ratio/avg"}},
    {.system = "roll",
     .json =
         R"({"train_infer_correction": {"is_weight": {"enabled": true, "upper_bound": 1.2}, "filters": [{"enabled": true, "agg_type": "geometric", "ratio_low": 0.99, "ratio_high": 1.01}]}})",
     .replaced =
         "roll.utils.train_infer_corrections.compute_train_infer_correction",
     .function = "counterweight_rl.compat.roll.compute_train_infer_correction",
     .how = "an import in the workers' place; the class "
            "`counterweight_rl.compat.roll.ActorPGWorker`, as `worker_cls`, "
            "has the whole loss",
     .calls = "one call for each micro-batch and rank",
     .has_loss = false,
     .watched = {"actor/is_weight_clipfrac@sum",
                 "actor/train_infer_geometric_ratio_mask_mean@sum",
                 "actor/train_infer_final_mask_mean"}},
    {.system = "tinker",
     .json =
         R"({"loss_fn": "ppo", "loss_fn_config": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}})",
     .replaced = "the loss of a server of Tinker's API",
     .function = "counterweight_rl.torch.policy_loss",
     .how = "the server's trainer passes the block as a `Dialect`",
     .calls = "one call for each batch",
     .has_loss = true,
     .watched = {"loss:sum"}},
};

}  // namespace

std::span<const SystemBlock> SystemBlocks() { return kBlocks; }

}  // namespace counterweight::server
