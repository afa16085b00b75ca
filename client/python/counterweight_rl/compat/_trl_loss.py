"""What GRPOTrainer's loss asks the service for: the block, the tensors, the factors around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from counterweight_rl import dialect_blocks
from counterweight_rl.compat import _service

# TRL needs the model's distribution for these, and no loss of the service has it: the trainer does
# them around the service's loss.
ENTROPY_FIELDS = (
    "top_entropy_quantile",
    "entropy_coef",
    "entropy_coef_delta",
    "entropy_coef_max",
    "entropy_coef_min",
    "entropy_target",
    "use_adaptive_entropy",
)
# Since TRL 1.14 only the model's layers, before it another loss, which the trainer refuses.
LIGER = "use_liger_kernel"

# Losses that no step of an accumulation divides.
DIVIDED_BY_ITEMS = ("cispo", "dapo", "vespo")


def block_of(trainer: Any, num_items_in_batch: float, *, training: bool) -> dict[str, Any]:
    """The dialect's block of a GRPOTrainer at this step.

    Args:
        trainer: Its own attributes, which callbacks may change, stand over its ``args``.
        num_items_in_batch: Tokens of the generation batch on all ranks.
        training: False: evaluation, which accumulates nothing.
    """
    block = dict(dialect_blocks.to_mapping("trl", trainer.args))
    for name in (*ENTROPY_FIELDS, LIGER, "vllm_importance_sampling_cap"):
        block.pop(name, None)
    block = {name: getattr(trainer, name, value) for name, value in block.items()}
    block["epsilon"] = trainer.epsilon_low
    block["num_items_in_batch"] = num_items_in_batch
    block["num_processes"] = trainer.accelerator.num_processes
    if training:
        block["gradient_accumulation_steps"] = trainer.current_gradient_accumulation_steps
    else:
        block["gradient_accumulation_steps"] = block["steps_per_generation"] = 1
    return block


def policy_loss(
    block: Mapping[str, Any],
    inputs: Mapping[str, torch.Tensor],
    per_token_logps: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    **options: Any,
) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss of one micro-batch, as TRL's ``_compute_loss`` but for entropies, and its metrics.

    Args:
        block: As ``block_of`` makes it.
        inputs: TRL's: old_per_token_logps, sampling_per_token_logps, ref_per_token_logps,
            importance_sampling_ratio, as far as they are there.
        per_token_logps: [B, T] nats; gets the gradient.
        advantages: [B, 1] or [B, T].
        mask: [B, T], each 0 or 1.
        **options: Of ``Client.correct``.

    Raises:
        InvalidRequestError: As the package says.
        ValueError: VESPO with weights that the inputs have without the log-probs behind them.
    """
    block = dict(block)
    sampling = inputs.get("sampling_per_token_logps")
    corrects = block["use_vllm"] and block["vllm_importance_sampling_correction"]
    if corrects and sampling is None and "importance_sampling_ratio" in inputs:
        # A subclass made the weights. All losses but VESPO are proportional to the advantages
        # where the factor is not negative, so that they may carry it.
        if block["loss_type"] == "vespo":
            raise ValueError(
                "loss_type 'vespo' needs sampling_per_token_logps in the inputs, not only "
                "importance_sampling_ratio"
            )
        block["vllm_importance_sampling_correction"] = False
        advantages = advantages * inputs["importance_sampling_ratio"]
    tensors = {
        "old_log_probs": inputs.get("old_per_token_logps"),
        "rollout_log_probs": sampling,
        "ref_log_probs": inputs["ref_per_token_logps"] if block["beta"] != 0.0 else None,
        "current_log_probs": per_token_logps,
    }
    return _service.policy_loss(
        "trl",
        block,
        **tensors,
        advantages=advantages,
        response_mask=mask,
        **options,
    )
