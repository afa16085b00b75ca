"""TRL's loss of given log-probs: ``GRPOTrainer._compute_loss`` of the installed release.

A stand-in for the trainer has the settings of a GRPOConfig; its forward pass returns the log-probs.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer

# Attributes that GRPOTrainer takes from its arguments.
_SETTINGS = (
    *("loss_type", "beta", "importance_sampling_level", "off_policy_mask_threshold", "use_vllm"),
    *("vllm_importance_sampling_correction", "max_completion_length", "top_entropy_quantile"),
)


class _Accelerator:
    """One process."""

    num_processes = 1
    sync_gradients = True

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        return values

    gather_for_metrics = gather

    def reduce(self, values: torch.Tensor, reduction: str) -> torch.Tensor:
        return values


def loss(
    arguments: Any, current: torch.Tensor, mask: torch.Tensor, **inputs: torch.Tensor
) -> tuple[torch.Tensor, dict[str, float]]:
    """Returns a training micro-batch's loss and TRL's metrics.

    Args:
        arguments: A GRPOConfig.
        current: [B, T] nats; gets the gradient.
        mask: [B, T], each 0 or 1.
        **inputs: advantages, [B], num_items_in_batch, and others by TRL's names for them.
    """
    metrics: dict[str, list[float]] = defaultdict(list)
    zeros = torch.zeros_like(current)
    trainer = SimpleNamespace(
        args=arguments,
        accelerator=_Accelerator(),
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=arguments.gradient_accumulation_steps,
        epsilon_low=arguments.epsilon,
        epsilon_high=arguments.epsilon
        if arguments.epsilon_high is None
        else arguments.epsilon_high,
        aux_loss_enabled=False,
        _entropy_bonus_enabled=False,
        _metrics={"train": metrics},
        _get_per_token_logps_and_entropies=lambda *_, **__: (current, zeros.detach(), None),
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        **{name: getattr(arguments, name) for name in _SETTINGS},
    )
    tokens = {"completion_ids": torch.zeros_like(mask), "completion_mask": mask}
    prompts = {"prompt_ids": mask[:, :1], "prompt_mask": mask[:, :1]}
    value = GRPOTrainer._compute_loss(trainer, None, {**tokens, **prompts, **inputs})
    return value, {name: values[-1] for name, values in metrics.items()}
