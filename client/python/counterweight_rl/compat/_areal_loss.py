"""AReaL's PPO loss, and its statistics of single tokens."""

from __future__ import annotations

import math
from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.dialect_blocks import to_mapping
from counterweight_rl.torch import attach, outputs_for

OWN_WARNING = "Metrics of areal"


def ppo_actor_loss_fn(
    logprobs: torch.Tensor,
    proximal_logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    eps_clip: float,
    loss_mask: torch.Tensor,
    eps_clip_higher: float | None = None,
    c_clip: float | None = None,
    rejection_sampling: Any = None,
    importance_sampling_level: str = "token",
    cu_seqlens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Computes the PPO loss; rejection sampling weighs its tokens.

    Args:
        logprobs: [B, T] or, packed, [N] nats; the policy being trained, which gets the gradient.
        proximal_logprobs: The same of the proximal policy, the anchor of the ratio.
        old_logprobs: The same of the policy that sampled.
        advantages: The same shape; with the level "sequence" the mean of a sequence's kept tokens
            takes their place, for which rejection sampling costs a call more where they differ.
        eps_clip: 1 - eps_clip bounds the ratio from below.
        loss_mask: The same shape, each 0 or 1.
        eps_clip_higher: 1 + eps_clip_higher bounds the ratio from above. None: eps_clip.
        c_clip: Largest ratio where the advantage is negative; > 1. None: none.
        rejection_sampling: As ``config`` of ``apply_rejection_sampling``. None: none.
        importance_sampling_level: "token", or "sequence": the ratio is a sequence's geometric mean.
        cu_seqlens: As in ``apply_rejection_sampling``.

    Returns:
        The loss, a scalar that can be differentiated by logprobs; AReaL's statistics: of tokens
        loss, importance_weight, approx_kl, clip_mask and dual_clip_mask, with 0 where the mask is
        0; n_total_tokens, n_valid_tokens, n_masked_tokens and masked_token_ratio; with rejection
        sampling behave_approx_kl, behave_imp_weight, behave_mask and filtered_fraction.

    Raises:
        ValueError: Packed sequences without cu_seqlens where a level is "sequence".
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    settings = {
        "eps_clip": eps_clip,
        "eps_clip_higher": eps_clip_higher,
        "c_clip": c_clip,
        "importance_sampling_level": importance_sampling_level,
    }
    outputs = outputs_for(logprobs)
    if rejection_sampling is not None:
        settings["rejection_sampling"] = rejection_sampling
        outputs = (*outputs, "weights", "keep_mask")
    block = block_of(settings)
    lengths = lengths_of(loss_mask, cu_seqlens, block)
    advantages = advantages.detach()
    result = _service.correct(
        "areal",
        block,
        release="",  # it runs from git
        current_log_probs=logprobs,
        old_log_probs=proximal_logprobs.detach(),
        rollout_log_probs=old_logprobs.detach(),
        advantages=advantages,
        response_mask=loss_mask,
        sequence_lengths=lengths,
        outputs=outputs,
        own_warning=OWN_WARNING,
    )
    loss = attach(logprobs, result)
    mask = loss_mask.bool()
    kept, weights = mask, None
    if rejection_sampling is not None:
        assert result.keep_mask is not None  # requested
        kept, weights = result.keep_mask.bool(), result.weights
    with torch.no_grad():
        zero = logprobs.new_zeros(())
        log_ratio = torch.where(mask, logprobs - proximal_logprobs, zero)
        ratio = torch.where(mask, log_ratio.exp(), zero)
        gain = torch.where(mask, advantages, zero)
        if importance_sampling_level == "sequence":
            ratio = torch.where(kept, row_means(log_ratio, kept, lengths).exp(), zero)
            gain = torch.where(kept, row_means(gain, kept, lengths), zero)
        high = eps_clip if eps_clip_higher is None else eps_clip_higher
        stat = _of_tokens(ratio, gain, 1 - eps_clip, 1 + high, c_clip)
        total, valid = mask.numel(), int(mask.sum())
        stat = {
            "loss": stat["loss"],
            "importance_weight": ratio,
            "approx_kl": log_ratio,
            **stat,
            "n_total_tokens": float(total),
            "n_valid_tokens": float(valid),
            "n_masked_tokens": float(total - valid),
            "masked_token_ratio": 1.0 - valid / max(total, 1),
        }
        if weights is not None:
            stat["loss"] = stat["loss"] * weights
            stat.update(of_rejection(result, proximal_logprobs, old_logprobs))
    return loss, stat


def of_rejection(
    result: Any, proximal_logprobs: torch.Tensor, old_logprobs: torch.Tensor
) -> dict[str, Any]:
    """Returns the statistics of rejection sampling.

    Args:
        result: An answer with weights and keep_mask.
        proximal_logprobs: As in ``ppo_actor_loss_fn``.
        old_logprobs: The same.
    """
    used = result.keep_mask.bool() & (result.weights > 0)
    ratio = (proximal_logprobs - old_logprobs).detach()
    return {
        "behave_approx_kl": torch.where(used, ratio, 0.0),
        "behave_imp_weight": result.weights,
        "behave_mask": used,
        "filtered_fraction": result.metrics.get("rs_filtered_fraction", math.nan),
    }


def block_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the dialect's block of a decoupled loss with the settings."""
    return dict(to_mapping("areal", {"use_decoupled_loss": True, **settings}))


def lengths_of(
    loss_mask: torch.Tensor, cu_seqlens: torch.Tensor | None, block: Any
) -> list[int] | None:
    """Returns the lengths of packed sequences; None for padded ones.

    Args:
        loss_mask: [B, T] or [N].
        cu_seqlens: [B + 1]; None: one packed sequence of tokens.
        block: The dialect's.

    Raises:
        ValueError: The block has a level "sequence", and packed sequences no cu_seqlens.
    """
    if loss_mask.ndim != 1:
        return None
    if cu_seqlens is not None:
        lengths: list[int] = cu_seqlens.diff().tolist()
        return lengths
    levels = (
        block.get("importance_sampling_level"),
        (block.get("rejection_sampling") or {}).get("level"),
    )
    if "sequence" in levels:
        raise ValueError(
            "cu_seqlens is required for 1D tensors, packed sequences, where a level is 'sequence'"
        )
    return [loss_mask.numel()]


def _of_tokens(
    ratio: torch.Tensor, advantages: torch.Tensor, low: float, high: float, largest: float | None
) -> dict[str, Any]:
    """Returns the unweighted token losses, and which tokens are clipped by which bound."""
    free, bounded = -advantages * ratio, -advantages * ratio.clamp(low, high)
    losses = torch.maximum(free, bounded)
    dual = torch.zeros_like(ratio, dtype=torch.bool)
    if largest is not None:
        limit = largest * advantages.abs()
        dual = limit < losses
        losses = torch.minimum(losses, limit)
    return {"loss": losses, "clip_mask": free < bounded, "dual_clip_mask": dual}


def row_means(values: torch.Tensor, kept: torch.Tensor, lengths: list[int] | None) -> torch.Tensor:
    """Returns each row's mean over kept tokens at all of its positions, 0 without any."""
    chosen = torch.where(kept, values, 0.0)
    if lengths is None:
        means = chosen.sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1)
        return means.expand_as(values)
    sizes = torch.tensor(lengths, device=values.device)
    row = torch.arange(len(lengths), device=values.device).repeat_interleave(sizes)
    sums = chosen.new_zeros(len(lengths)).index_add_(0, row, chosen)
    counts = chosen.new_zeros(len(lengths)).index_add_(0, row, kept.to(chosen.dtype))
    return (sums / counts.clamp(min=1))[row]
