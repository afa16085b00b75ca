"""The loss, correction and configuration code of each peer that the watch compares."""

from __future__ import annotations

# By file: classes and functions, of a class all its members, of a function its whole body; None:
# all that the file has.
WATCHED: dict[str, dict[str, tuple[str, ...] | None]] = {
    "areal": {
        "areal/api/cli_args.py": ("RejectionSamplingConfig", "PPOActorConfig"),
        "areal/trainer/ppo/actor.py": ("grpo_loss_fn",),
        "areal/utils/functional/functional.py": (
            *("RejectionSamplingResult", "_check_bounds", "apply_rejection_sampling"),
            *("_compute_sequence_level_ratio_and_advantages", "ppo_actor_loss_fn", "sapo_loss_fn"),
            "cispo_loss_fn",
        ),
    },
    "miles": {
        "examples/infra_features/train_infer_mismatch_helper/mis.py": None,
        "miles/backends/training_utils/loss_hub/corrections.py": None,
        "miles/backends/training_utils/loss_hub/losses.py": ("policy_loss_function",),
        "miles/backends/training_utils/loss_hub/math_utils.py": (
            *("_safe_clamp_log_ratio", "_safe_exp_neg_ppo_kl", "compute_ess_ratio_contribution"),
            *("compute_approx_kl", "compute_opsm_mask", "compute_gspo_kl", "compute_policy_loss"),
        ),
    },
    "ms-swift": {
        "swift/megatron/trainers/grpo_trainer.py": (
            *(
                "MegatronGRPOTrainer.loss_func",
                "MegatronGRPOTrainer._compute_sequence_level_ratios",
            ),
            "MegatronGRPOTrainer._apply_rollout_importance_sampling",
            "MegatronGRPOTrainer._compute_off_policy_sequence_mask",
            "MegatronGRPOTrainer._compute_rollout_offpolicy_metrics",
            "MegatronGRPOTrainer._compute_is_correction_metrics",
        ),
        "swift/rlhf_trainers/args_mixin.py": ("GRPOArgumentsMixin",),
        "swift/rlhf_trainers/grpo_trainer.py": (
            *("WINDOW_NORMALIZED_LOSS_TYPES", "GRPOTrainer._compute_loss_and_metrics"),
            "GRPOTrainer._undo_gradient_accumulation_scaling",
            "GRPOTrainer._prepare_algorithm_params",
            "GRPOTrainer._compute_sequence_level_ratios",
            "GRPOTrainer._apply_rollout_importance_sampling",
            "GRPOTrainer._compute_off_policy_sequence_mask",
            "GRPOTrainer._compute_rollout_offpolicy_metrics",
            "GRPOTrainer._compute_is_correction_metrics",
        ),
    },
    "nemo-rl": {
        "nemo_rl/algorithms/loss/loss_functions.py": ("ClippedPGLossConfig", "ClippedPGLossFn"),
    },
    "openrlhf": {
        "openrlhf/models/loss.py": None,
        "openrlhf/models/utils.py": None,
    },
    "prime-rl": {
        "packages/prime-rl-configs/src/prime_rl/configs/trainer.py": (
            *("DefaultLossConfig", "IPOLossConfig", "CustomLossConfig"),
        ),
        "src/prime_rl/trainer/rl/loss.py": (
            *("LossInputs", "_safe_mean", "compute_importance_ratio_and_mismatch_kl"),
            *("default_loss_fn", "ipo_loss_fn", "ref_kl_loss_fn", "setup_rl_loss_fn"),
            "compute_loss",
        ),
    },
    "roll": {
        "roll/configs/base_config.py": (
            *("TrainInferISWeightConfig", "TrainInferFilterConfig", "TrainInferCorrectionConfig"),
        ),
        "roll/pipeline/rlvr/actor_pg_worker.py": ("ActorPGWorker",),
        "roll/pipeline/rlvr/actor_worker.py": ("ActorWorker",),
        "roll/utils/functionals.py": ("agg_loss", "masked_mean", "masked_sum"),
        "roll/utils/train_infer_corrections.py": None,
    },
    "skyrl": {
        "skyrl/backends/skyrl_train/utils/off_policy_correction_utils.py": None,
        "skyrl/backends/skyrl_train/utils/ppo_utils.py": None,
        "skyrl/train/config/config.py": (
            *("AlgorithmConfig", "OffPolicyCorrectionConfig", "CISPOConfig", "SAPOConfig"),
            *("ClipCovConfig", "KLCovConfig", "DPPOConfig"),
        ),
    },
    "slime": {
        "examples/train_infer_mismatch_helper/mis.py": None,
        "slime/backends/megatron_utils/loss.py": (
            *("vanilla_tis_function", "icepop_function", "policy_loss_function", "loss_function"),
        ),
        "slime/utils/ppo_utils.py": (
            *("compute_approx_kl", "compute_opsm_mask", "compute_gspo_kl", "compute_policy_loss"),
            "compute_cispo_loss",
        ),
    },
    "trl": {
        "trl/trainer/grpo_config.py": ("GRPOConfig",),
        "trl/trainer/grpo_trainer.py": (
            *("GRPOTrainer._compute_loss", "GRPOTrainer.get_off_policy_mask"),
            *("GRPOTrainer.get_gamma_weights", "GRPOTrainer.compute_loss"),
            "GRPOTrainer._generate_and_score_completions",
        ),
    },
    "verl": {
        "verl/trainer/config/algorithm.py": None,
        "verl/trainer/ppo/core_algos.py": None,
        "verl/trainer/ppo/rollout_corr_helper.py": None,
        "verl/workers/config/actor.py": ("ActorConfig", "PolicyLossConfig"),
        "verl/workers/utils/losses.py": None,
    },
}
