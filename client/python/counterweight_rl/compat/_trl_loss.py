"""GRPOTrainer's loss by the service: the block, the tensors, the factors around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from counterweight_rl import dialect_blocks
from counterweight_rl.compat import _service

# TRL needs the model's distribution for these fields, which no loss of the service has; the trainer
# handles them around the service's loss.
ENTROPY_FIELDS = (
    "top_entropy_quantile",
    "entropy_coef",
    "entropy_coef_delta",
    "entropy_coef_max",
    "entropy_coef_min",
    "entropy_target",
    "use_adaptive_entropy",
)
# Since TRL 1.14 it selects the model's layers only; before, another loss, which the trainer
# refuses.
LIGER = "use_liger_kernel"

# Losses that TRL does not divide by the steps of an accumulation.
DIVIDED_BY_ITEMS = ("cispo", "dapo", "vespo")


def block_of(trainer: Any, num_items_in_batch: float, *, training: bool) -> dict[str, Any]:
    """Returns the dialect's block of a GRPOTrainer at this step.

    Args:
        trainer: The trainer; its own attributes, which callbacks may change, override its
        num_items_in_batch: Tokens of the generation batch on all ranks.
        training: False for evaluation, which accumulates no gradients.
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
    """Returns one micro-batch's loss, as TRL's ``_compute_loss`` without entropies, and metrics.

    Args:
        block: The result of ``block_of``.
        inputs: TRL's inputs: old_per_token_logps, sampling_per_token_logps, ref_per_token_logps,
            importance_sampling_ratio, each if present.
        per_token_logps: [B, T] nats; gets the gradient.
        advantages: [B, 1] or [B, T].
        mask: [B, T], each 0 or 1.
        **options: Options of ``Client.correct``.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
        ValueError: VESPO with weights in the inputs but without their log-probs.
    """
    block = dict(block)
    given_weights = None
    sampling = inputs.get("sampling_per_token_logps")
    corrects = block["use_vllm"] and block["vllm_importance_sampling_correction"]
    if corrects and sampling is None and "importance_sampling_ratio" in inputs:
        # A subclass made the weights. All losses but VESPO are proportional to the advantages if
        # the factor is not negative, so the advantages can carry it.
        if block["loss_type"] == "vespo":
            raise ValueError(
                "loss_type 'vespo' needs sampling_per_token_logps in the inputs, not only "
                "importance_sampling_ratio"
            )
        block["vllm_importance_sampling_correction"] = False
        given_weights = inputs["importance_sampling_ratio"].expand_as(mask)
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
        given_weights=given_weights,
        **options,
    )
