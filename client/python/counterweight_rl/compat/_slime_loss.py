"""slime's policy losses of each token: ``slime.utils.ppo_utils``."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from counterweight_rl.compat import _service


def compute_policy_loss(
    ppo_kl: torch.Tensor,
    advantages: torch.Tensor,
    eps_clip: float,
    eps_clip_high: float,
    eps_clip_c: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes the clipped losses of tokens, which no mask leaves out.

    The service computes the losses' derivatives, in one call. That of a loss which is not clipped
    is the loss itself, since it is proportional to the ratio; a clipped one is a constant.

    Args:
        ppo_kl: [N] nats, old - current log-probs; of gspo the row's mean. It gets the gradient.
        advantages: [N].
        eps_clip: 1 - eps_clip bounds the ratio from below.
        eps_clip_high: 1 + eps_clip_high bounds the ratio from above.
        eps_clip_c: Largest ratio where the advantage is negative; > 1. None: none.

    Returns:
        The losses, [N], which can be differentiated once by ppo_kl, with the derivative 0 where a
        ratio that overflows is clipped (slime: NaN); 1 for each token whose loss is that of one of
        the first two bounds, else 0, float32.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    kl = ppo_kl.detach()
    dtype = torch.promote_types(ppo_kl.dtype, advantages.dtype)
    if kl.numel() == 0:
        return (-ppo_kl * advantages).to(dtype), torch.zeros_like(kl, dtype=torch.float32)
    settings = {"eps_clip": eps_clip, "eps_clip_high": eps_clip_high, "eps_clip_c": eps_clip_c}
    slope = _slopes(kl, advantages, settings)
    is_above = kl < 0
    is_flat = (slope == 0) & kl.isfinite() & (kl != 0)
    gains = is_flat & (advantages > 0) & is_above
    avoids = is_flat & (advantages < 0)
    largest = torch.where(advantages > 0, 1 + eps_clip_high, eps_clip_c or 1.0)
    bound = torch.where(is_above, largest, max(1 - eps_clip, 0.0))
    losses = torch.where(gains | avoids, -bound * advantages, slope)
    clipped = gains | (avoids & ~is_above)
    made: torch.Tensor = _Losses.apply(ppo_kl, losses, -slope)
    return made.to(dtype), clipped.float()


def compute_cispo_loss(
    ppo_kl: torch.Tensor,
    log_probs: torch.Tensor,
    advantages: torch.Tensor,
    eps_clip: float,
    eps_clip_high: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes CISPO's losses of tokens: the clipped ratio, a constant, times the log-prob.

    The service computes the losses' derivatives, in one call; a loss is its derivative times the
    log-prob.

    Args:
        ppo_kl: [N] nats, old - current log-probs; it gets no gradient.
        log_probs: [N] nats, of the policy being trained; they get the gradient.
        advantages: [N].
        eps_clip: 1 - eps_clip bounds the ratio from below.
        eps_clip_high: 1 + eps_clip_high bounds the ratio from above.

    Returns:
        The losses, [N]; 1 for each token with a ratio outside of the bounds, else 0, float32.

    Raises:
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    kl = ppo_kl.detach()
    if kl.numel() == 0:
        return -log_probs * advantages, torch.zeros_like(kl, dtype=torch.float32)
    settings = {"eps_clip": eps_clip, "eps_clip_high": eps_clip_high}
    slope = _slopes(kl, advantages, {**settings, "advantage_estimator": "cispo"})
    ratio = (-kl).exp()
    clipped = ratio.clamp(1 - eps_clip, 1 + eps_clip_high) != ratio
    dtype = torch.promote_types(torch.promote_types(kl.dtype, advantages.dtype), log_probs.dtype)
    return (slope * log_probs).to(dtype), clipped.float()


def _slopes(kl: torch.Tensor, advantages: torch.Tensor, settings: dict[str, Any]) -> torch.Tensor:
    """Returns the derivative of each token's loss by its log-prob, [N].

    Args:
        kl: [N] nats, old - current log-probs, without gradient.
        advantages: [N].
        settings: The clip, as the dialect's fields.
    """
    result = _service.correct(
        "slime",
        # The sum over all tokens.
        {**settings, "rollout_mask_sums": [1.0], "step_global_batch_size": 1},
        release="",  # it runs from git
        # Log-probs with this difference, both at most 0.
        current_log_probs=(-kl).clamp(max=0),
        old_log_probs=kl.clamp(max=0),
        advantages=advantages.detach(),
        response_mask=torch.ones_like(kl, dtype=torch.bool),
        sequence_lengths=[kl.numel()],
        outputs=("loss", "gradient"),
        metrics=False,
        own_warning="Metrics of slime",
    )
    assert result.gradient is not None  # requested
    return result.gradient


class _Losses(torch.autograd.Function):
    """Values with given derivatives."""

    @staticmethod
    def forward(
        ctx: Any, like: torch.Tensor, values: torch.Tensor, derivatives: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(derivatives)
        ctx.dtype = like.dtype
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (derivatives,) = ctx.saved_tensors
        return (upstream * derivatives).to(ctx.dtype), None, None
