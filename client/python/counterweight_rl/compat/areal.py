"""AReaL's losses and rejection sampling: ``areal.utils.functional``.

    from counterweight_rl.compat.areal import apply_rejection_sampling, ppo_actor_loss_fn

Numbers and quirks are those of the dialect ``areal`` (areal-project/AReaL @cbff54d6). Differences:

* ``metric: binary_kl``, which AReaL's configuration refuses, is refused.
* Of sequences, ``clamp`` goes with ``agg: mean`` only.
* A log ratio that is not finite, for which AReaL takes 0, is refused, dropped or neutralized.
* A token's statistic is 0 where the mask is 0; the trainer does not read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.compat._areal_cispo import cispo_loss_fn
from counterweight_rl.compat._areal_loss import OWN_WARNING, block_of, lengths_of, ppo_actor_loss_fn
from counterweight_rl.compat._areal_sapo import sapo_loss_fn

__all__ = [
    "RejectionSamplingResult",
    "apply_rejection_sampling",
    "cispo_loss_fn",
    "ppo_actor_loss_fn",
    "sapo_loss_fn",
]


@dataclass
class RejectionSamplingResult:
    """The fields of AReaL's class of this name.

    Attributes:
        loss_mask: The mask without rejected tokens, in its dtype.
        behave_imp_weight: float32, the mask's shape; 0 where that mask is 0.
        filtered_fraction: Share of the tokens that were rejected or clamped; NaN while the server
            is away.
    """

    loss_mask: torch.Tensor
    behave_imp_weight: torch.Tensor
    filtered_fraction: float


def apply_rejection_sampling(
    proximal_logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    cu_seqlens: torch.Tensor | None,
    config: Any,
) -> RejectionSamplingResult:
    """Rejects or clamps tokens or sequences by the ratio of two policies.

    Args:
        proximal_logprobs: [B, T] or, packed, [N] nats; of the proximal policy.
        old_logprobs: The same of the policy that sampled.
        loss_mask: The same shape, each 0 or 1.
        cu_seqlens: [B + 1], the first positions of packed sequences, and N. None: [B, T], or one
            packed sequence of tokens.
        config: A RejectionSamplingConfig, or an object or mapping with its fields.

    Raises:
        ValueError: Packed sequences without cu_seqlens where the level is "sequence".
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    block = block_of({"rejection_sampling": config})
    result = _service.correct(
        "areal",
        block,
        release="",  # it runs from git
        old_log_probs=proximal_logprobs.detach(),
        rollout_log_probs=old_logprobs.detach(),
        response_mask=loss_mask,
        sequence_lengths=lengths_of(loss_mask, cu_seqlens, block),
        own_warning=OWN_WARNING,
    )
    assert result.keep_mask is not None  # a default output
    fraction = result.metrics.get("rs_filtered_fraction", math.nan)
    return RejectionSamplingResult(result.keep_mask, result.weights, fraction)
