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

The service computes loss and gradient in one call, in the forward pass; backward multiplies this
gradient by the upstream one. Gradient accumulation (``loss / steps``), loss scaling and sums with
other losses therefore work as with any loss. There is no second derivative: requesting one is a
RuntimeError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from counterweight_rl import calls
from counterweight_rl.arrays.nested import flatten
from counterweight_rl.client import Client
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.result import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from counterweight_rl.calls import LossArguments

__all__ = ["policy_loss", "policy_loss_with_result"]


@calls.takes(calls.LOSS_ARGUMENTS)
def policy_loss(
    client: Client,
    *,
    current_log_probs: torch.Tensor,
    advantages: torch.Tensor | None = None,
    **call: Unpack[LossArguments[torch.Tensor]],
) -> torch.Tensor:
    """Returns the method's policy loss, whose backward is the service's gradient.

    The arguments are those of ``Client.correct`` without ``outputs``. The method is a Dialect, or a
    CorrectionConfig or preset that has a policy loss.

    Args:
        client: The client to ask.
        current_log_probs: log pi_theta at this gradient step, nats; padded [B, T] or, with
            ``sequence_lengths``, packed [N]; or nested; float32, bfloat16, float16 or float64 (sent
            as float32). The only input that gets a gradient; where response_mask is 0 it is 0,
            whatever the position contains.
        advantages: [B, T] or [N]; or one per sequence, [B] or [B, 1] (packed: [B, 1] alone where B
            is N and a sequence is empty). None: for a method that makes its own.
        **call: Other arguments of ``Client.correct``; response_mask and method are required.

    Returns:
        A scalar on the device of current_log_probs; float32, or float64 if they are. Its gradient
        has the dtype of current_log_probs.

    Raises:
        InvalidRequestError: The method has no policy loss, or another reason of ``Client.correct``,
            whose other errors occur too.
    """
    calls.check_names("policy_loss", call, calls.LOSS_ARGUMENTS)
    result = client.correct(
        current_log_probs=current_log_probs,
        advantages=advantages,
        outputs=outputs_for(current_log_probs),
        **call,
    )
    return attach(current_log_probs, result)


@calls.takes(calls.LOSS_ARGUMENTS)
def policy_loss_with_result(
    client: Client,
    *,
    current_log_probs: torch.Tensor,
    advantages: torch.Tensor | None = None,
    **call: Unpack[LossArguments[torch.Tensor]],
) -> tuple[torch.Tensor, Result[torch.Tensor]]:
    """Returns the loss of ``policy_loss``, and the Result with metrics, weights and keep mask.

    Arguments and errors are those of ``policy_loss``.

    Returns:
        The loss, and the Result of ``Client.correct`` with its default outputs.
    """
    calls.check_names("policy_loss_with_result", call, calls.LOSS_ARGUMENTS)
    result = client.correct(current_log_probs=current_log_probs, advantages=advantages, **call)
    return attach(current_log_probs, result), result


def outputs_for(current_log_probs: torch.Tensor) -> tuple[str, ...]:
    """Returns the outputs that a loss needs: no gradient if autograd would discard it."""
    wants_gradient = torch.is_grad_enabled() and current_log_probs.requires_grad
    return ("loss", "gradient") if wants_gradient else ("loss",)


def attach(current_log_probs: torch.Tensor, result: Result[torch.Tensor]) -> torch.Tensor:
    """Returns the answer's loss as a function of the log-probs.

    Raises:
        InvalidRequestError: The answer has no loss.
    """
    if result.loss is None:
        raise refuse([Violation("method", "has no policy loss")], result.request_id)
    gradient = result.gradient
    if current_log_probs.is_nested:
        # Autograd's gradient of a nested tensor must have its very layout; that of the packed
        # elements needs none.
        current_log_probs, _ = flatten("current_log_probs", current_log_probs)
        if gradient is not None:
            gradient, _ = flatten("gradient", gradient)
    loss: torch.Tensor = _PolicyLoss.apply(current_log_probs, result.loss, gradient)
    return loss


class _PolicyLoss(torch.autograd.Function):
    """A number with a precomputed gradient."""

    @staticmethod
    def forward(
        ctx: Any, current_log_probs: torch.Tensor, loss: float, gradient: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(gradient)
        ctx.dtype = current_log_probs.dtype
        dtype = torch.promote_types(current_log_probs.dtype, torch.float32)
        return torch.scalar_tensor(loss, dtype=dtype, device=current_log_probs.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        # Multiplies in float32: a loss scale beyond float16 would overflow before the
        # multiplication.
        return (upstream * gradient).to(ctx.dtype), None, None
