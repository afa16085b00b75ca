"""The policy loss as a node of torch's autograd.

    from counterweight_rl.torch import policy_loss

    loss = policy_loss(
        client,
        current_log_probs=log_probs,  # [B, T], requires grad
        old_log_probs=old,
        rollout_log_probs=mu,
        response_mask=mask,
        advantages=advantages,  # [B, T], [B] or [B, 1]
        method=cw.Dialect("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0}),
    )
    loss.backward()

The service computes loss and gradient in one call, in the forward pass; backward multiplies the
gradient that is already there by the upstream one. Gradient accumulation (``loss / steps``), loss
scaling and sums with other losses therefore work as with any loss; a second derivative does not
exist, and asking for it is a RuntimeError.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from counterweight_rl.client import Client
from counterweight_rl.config import Method
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.result import Result

__all__ = ["policy_loss", "policy_loss_with_result"]


def policy_loss(
    client: Client,
    *,
    current_log_probs: torch.Tensor,
    response_mask: torch.Tensor,
    advantages: torch.Tensor,
    method: Method,
    rollout_log_probs: torch.Tensor | None = None,
    old_log_probs: torch.Tensor | None = None,
    ref_log_probs: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """The method's policy loss, whose backward is the gradient that the service computed.

    Args:
        client: Where to ask.
        current_log_probs: log pi_theta at this gradient step, nats; padded [B, T] or, with
            ``sequence_lengths``, packed [N]; float32, bfloat16, float16 or float64 (sent as
            float32). The only input that gets a gradient.
        response_mask: [B, T] or [N], each 0 or 1; 1 = the token counts. Other positions get
            gradient 0, whatever they hold.
        advantages: [B, T] or [N]; or one per sequence, [B] or [B, 1].
        method: A Dialect, or a CorrectionConfig or preset that has a policy loss.
        rollout_log_probs: log mu of the policy that sampled; nats. Needed or not by the method.
        old_log_probs: log pi_old, the anchor of the step; nats. Needed or not by the method.
        ref_log_probs: log pi_ref, for a KL penalty; nats.
        **options: The other arguments of ``Client.correct``, but ``outputs``: sequence_lengths,
            global_counts, group_ids, seed, run, request_id, non_finite, timeout, ...

    Returns:
        A scalar on the device of current_log_probs; float32, or float64 if they are. Its gradient
        has the dtype of current_log_probs.

    Raises:
        InvalidRequestError: The method has no policy loss, or what ``Client.correct`` raises it
            for; its other errors likewise.
    """
    result = client.correct(
        current_log_probs=current_log_probs,
        response_mask=response_mask,
        advantages=advantages,
        method=method,
        rollout_log_probs=rollout_log_probs,
        old_log_probs=old_log_probs,
        ref_log_probs=ref_log_probs,
        outputs=outputs_for(current_log_probs),
        **options,
    )
    return attach(current_log_probs, result)


def policy_loss_with_result(
    client: Client,
    *,
    current_log_probs: torch.Tensor,
    response_mask: torch.Tensor,
    advantages: torch.Tensor,
    method: Method,
    rollout_log_probs: torch.Tensor | None = None,
    old_log_probs: torch.Tensor | None = None,
    ref_log_probs: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, Result[torch.Tensor]]:
    """``policy_loss``, and the rest of the answer: metrics, weights, keep mask, warnings.

    Takes and raises what ``policy_loss`` does.

    Returns:
        The loss, and the Result of ``Client.correct`` with its default outputs.
    """
    result = client.correct(
        current_log_probs=current_log_probs,
        response_mask=response_mask,
        advantages=advantages,
        method=method,
        rollout_log_probs=rollout_log_probs,
        old_log_probs=old_log_probs,
        ref_log_probs=ref_log_probs,
        outputs=None,
        **options,
    )
    return attach(current_log_probs, result), result


def outputs_for(current_log_probs: torch.Tensor) -> tuple[str, ...]:
    """What a loss needs to be asked for: no gradient where autograd would drop it."""
    wants_gradient = torch.is_grad_enabled() and current_log_probs.requires_grad
    return ("loss", "gradient") if wants_gradient else ("loss",)


def attach(current_log_probs: torch.Tensor, result: Result[torch.Tensor]) -> torch.Tensor:
    """The answer's loss as a function of the log-probs.

    Raises:
        InvalidRequestError: It has none.
    """
    if result.loss is None:
        raise refuse([Violation("method", "has no policy loss")], result.request_id)
    loss: torch.Tensor = _PolicyLoss.apply(current_log_probs, result.loss, result.gradient)
    return loss


class _PolicyLoss(torch.autograd.Function):
    """A number with a gradient that is known already."""

    @staticmethod
    def forward(
        ctx: Any, current_log_probs: torch.Tensor, loss: float, gradient: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(gradient)
        ctx.dtype = current_log_probs.dtype
        dtype = torch.promote_types(current_log_probs.dtype, torch.float32)
        return torch.tensor(loss, dtype=dtype, device=current_log_probs.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        # In float32 first: a loss scale beyond float16 must not overflow before it is multiplied.
        return (upstream * gradient).to(ctx.dtype), None, None
