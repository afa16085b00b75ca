"""AReaL's CISPO loss, and its statistics of single tokens."""

from __future__ import annotations

from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.compat._areal_loss import OWN_WARNING, block_of, lengths_of, of_rejection
from counterweight_rl.torch import attach, outputs_for


def cispo_loss_fn(
    logprobs: torch.Tensor,
    proximal_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    eps_clip: float,
    loss_mask: torch.Tensor,
    eps_clip_higher: float | None = None,
    old_logprobs: torch.Tensor | None = None,
    rejection_sampling: Any = None,
    cu_seqlens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Computes the CISPO loss: the clipped ratio, a constant, times the log-prob.

    Args:
        logprobs: As in ``ppo_actor_loss_fn``.
        proximal_logprobs: The same.
        advantages: The same, one for each token.
        eps_clip: 1 - eps_clip bounds the ratio from below.
        loss_mask: As in ``ppo_actor_loss_fn``.
        eps_clip_higher: 1 + eps_clip_higher bounds the ratio from above; required, > 0.
        old_logprobs: As in ``ppo_actor_loss_fn``; required with rejection_sampling, else not read.
        rejection_sampling: As in ``ppo_actor_loss_fn``.
        cu_seqlens: The same.

    Returns:
        The loss, a scalar that can be differentiated by logprobs; AReaL's statistics: of tokens
        loss, importance_weight, approx_kl and, of kept ones, clip_mask, with 0 where the mask is 0;
        dual_clip_mask, which is False; with rejection sampling those of ``ppo_actor_loss_fn``.

    Raises:
        ValueError: Packed sequences without cu_seqlens where the level is "sequence".
        InvalidRequestError: No eps_clip_higher; and see ``counterweight_rl.compat``.
    """
    settings = {"use_cispo_loss": True, "eps_clip": eps_clip, "eps_clip_higher": eps_clip_higher}
    rejects = rejection_sampling is not None
    rollout, outputs = None, outputs_for(logprobs)
    if rejects:
        settings["rejection_sampling"] = rejection_sampling
        rollout = None if old_logprobs is None else old_logprobs.detach()
        outputs = (*outputs, "weights", "keep_mask")
    else:
        # The proximal policy is that of the ratio, and no other is read.
        settings.update(use_decoupled_loss=False, recompute_logprob=True)
    block = block_of(settings)
    result = _service.correct(
        "areal",
        block,
        release="",  # it runs from git
        current_log_probs=logprobs,
        old_log_probs=proximal_logprobs.detach(),
        rollout_log_probs=rollout,
        advantages=advantages.detach(),
        response_mask=loss_mask,
        sequence_lengths=lengths_of(loss_mask, cu_seqlens, block),
        outputs=outputs,
        metrics=rejects,
        own_warning=OWN_WARNING,
    )
    loss = attach(logprobs, result)
    mask = loss_mask.bool()
    with torch.no_grad():
        log_ratio = torch.where(mask, logprobs - proximal_logprobs, 0.0)
        ratio = log_ratio.exp()
        bounded = ratio.clamp(1 - eps_clip, 1 + (eps_clip_higher or 0.0))
        stat: dict[str, Any] = {
            "loss": torch.where(mask, -bounded * advantages * logprobs, 0.0),
            "importance_weight": ratio.masked_fill(~mask, 0),
            "approx_kl": log_ratio,
            "clip_mask": mask & (bounded != ratio),
            "dual_clip_mask": torch.zeros_like(mask),
        }
        if rejects:
            assert result.keep_mask is not None  # requested
            assert old_logprobs is not None  # the server needs it
            stat["loss"] = stat["loss"] * result.weights
            stat["clip_mask"] = stat["clip_mask"] & result.keep_mask.bool()
            stat.update(of_rejection(result, proximal_logprobs, old_logprobs))
    return loss, stat
