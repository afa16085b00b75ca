"""Drift of each token, which trainers average as they do their own metrics.

It is of the inputs alone, so that it is there with every method, a dialect's too, whose metrics
have that system's names.
"""

from __future__ import annotations

import torch

NAMES = ("kl", "k3")


def of_tokens(
    log_probs: torch.Tensor, rollout_log_probs: torch.Tensor, mask: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Returns -l and exp(l) - 1 - l, l = log_probs - rollout_log_probs, by NAMES.

    Args:
        log_probs: nats, of any floating-point dtype; a gradient is not kept.
        rollout_log_probs: The same shape, of the policy that sampled.
        mask: The same shape, each 0 or 1. Where it is 0, or l not finite, both are 0.

    Returns:
        float32, the same shape.
    """
    ratio = log_probs.detach().float() - rollout_log_probs.detach().float()
    ratio = torch.where(mask.bool() & ratio.isfinite(), ratio, torch.zeros_like(ratio))
    return {"kl": -ratio, "k3": ratio.expm1() - ratio}
