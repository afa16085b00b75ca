"""AReaL's SAPO loss, and its statistics of single tokens."""

from __future__ import annotations

from typing import Any

import torch

from counterweight_rl.compat import _service
from counterweight_rl.compat._areal_loss import OWN_WARNING, lengths_of, row_means
from counterweight_rl.torch import attach, outputs_for


def sapo_loss_fn(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    tau_pos: float,
    tau_neg: float,
    loss_mask: torch.Tensor,
    importance_sampling_level: str = "token",
    cu_seqlens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Computes the SAPO loss: a sigmoid of the ratio in place of the clip.

    Args:
        logprobs: As in ``ppo_actor_loss_fn``.
        old_logprobs: The same, the anchor of the ratio.
        advantages: The same.
        tau_pos: Temperature of the sigmoid where the advantage is positive; > 0.
        tau_neg: The same elsewhere.
        loss_mask: As in ``ppo_actor_loss_fn``.
        importance_sampling_level: The same.
        cu_seqlens: The same.

    Returns:
        The loss, a scalar that can be differentiated by logprobs; AReaL's statistics of tokens,
        with 0 where the mask is 0: loss, importance_weight, approx_kl, clip_mask and
        dual_clip_mask, which are False, sapo_soft_gate, sapo_scaled_gate_pos and
        sapo_scaled_gate_neg.

    Raises:
        ValueError: Packed sequences without cu_seqlens where the level is "sequence".
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    block = {
        "use_sapo_loss": True,
        "sapo_tau_pos": tau_pos,
        "sapo_tau_neg": tau_neg,
        "importance_sampling_level": importance_sampling_level,
    }
    lengths = lengths_of(loss_mask, cu_seqlens, block)
    advantages = advantages.detach()
    result = _service.correct(
        "areal",
        block,
        release="",  # it runs from git
        current_log_probs=logprobs,
        rollout_log_probs=old_logprobs.detach(),
        advantages=advantages,
        response_mask=loss_mask,
        sequence_lengths=lengths,
        outputs=outputs_for(logprobs),
        metrics=False,
        own_warning=OWN_WARNING,
    )
    loss = attach(logprobs, result)
    mask = loss_mask.bool()
    with torch.no_grad():
        log_ratio = torch.where(mask, logprobs - old_logprobs, 0.0)
        ratio, gain = log_ratio.exp(), torch.where(mask, advantages, 0.0)
        if importance_sampling_level == "sequence":
            ratio = row_means(log_ratio, mask, lengths).exp()
            gain = row_means(gain, mask, lengths)
        gates = [4 / tau * torch.sigmoid(tau * (ratio - 1)) for tau in (tau_pos, tau_neg)]
        gate = torch.where(gain > 0, *gates)
        none = torch.zeros_like(mask)
        stat = {
            "loss": -gate * gain,
            "importance_weight": ratio,
            "approx_kl": log_ratio,
            "clip_mask": none,
            "dual_clip_mask": none.clone(),
            "sapo_soft_gate": gate,
            "sapo_scaled_gate_pos": gates[0],
            "sapo_scaled_gate_neg": gates[1],
        }
    return loss, {name: one.masked_fill(~mask, 0) for name, one in stat.items()}
