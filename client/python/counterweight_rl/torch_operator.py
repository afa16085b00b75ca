"""The policy loss as a registered operator of torch, for torch.compile and FSDP.

    from counterweight_rl.torch_operator import PolicyLossOperator

    policy_loss = PolicyLossOperator(client, method="icepop_ppo")

    @torch.compile(fullgraph=True)
    def step(...):
        return policy_loss(
            current_log_probs=..., old_log_probs=..., response_mask=..., advantages=...
        )

``counterweight_rl.torch.policy_loss`` takes the client and the method with each call, which a graph
cannot hold. This object has them, and graphs have its number. Loss and gradient are the same bytes.
Needs torch 2.4.
"""

from __future__ import annotations

import itertools
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from counterweight_rl import calls
from counterweight_rl.arrays.nested import unnest
from counterweight_rl.calls import Settings
from counterweight_rl.client import Client
from counterweight_rl.config import Method
from counterweight_rl.errors import Violation, refuse
from counterweight_rl.result import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["PolicyLossOperator"]

_numbers = itertools.count()
_operators: weakref.WeakValueDictionary[int, PolicyLossOperator] = weakref.WeakValueDictionary()


class PolicyLossOperator:
    """A client and a method; calls return the loss and may be compiled.

    It must live as long as the graphs that were compiled with it.

    Attributes:
        last_result: Of the newest call, without arrays; None before the first. Read it outside of
            compiled code.
    """

    last_result: Result[torch.Tensor] | None

    @calls.takes(Settings.__annotations__)
    def __init__(
        self,
        client: Client,
        *,
        method: Method,
        **settings: Unpack[Settings],
    ) -> None:
        """Sends nothing. The arguments are those of ``counterweight_rl.torch.policy_loss``."""
        calls.check_names("PolicyLossOperator", settings, Settings.__annotations__)
        self._client = client
        self._method = method
        self._settings = settings
        self.last_result = None
        self._number = next(_numbers)
        _operators[self._number] = self

    def __call__(
        self,
        *,
        current_log_probs: torch.Tensor,
        response_mask: torch.Tensor,
        advantages: torch.Tensor | None = None,
        rollout_log_probs: torch.Tensor | None = None,
        old_log_probs: torch.Tensor | None = None,
        ref_log_probs: torch.Tensor | None = None,
        sequence_lengths: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the loss; arguments, result and errors are those of ``policy_loss``.

        ``sequence_lengths`` is a tensor of integers, [B].
        """
        inputs = {
            "current_log_probs": current_log_probs,
            "response_mask": response_mask,
            "advantages": advantages,
            "rollout_log_probs": rollout_log_probs,
            "old_log_probs": old_log_probs,
            "ref_log_probs": ref_log_probs,
        }
        if response_mask.is_nested or current_log_probs.is_nested:
            # Operators of torch.library take no nested tensors.
            inputs, mask, nested = unnest(inputs, "response_mask", response_mask, sequence_lengths)
            inputs["response_mask"] = mask
            sequence_lengths = None if nested is None else torch.tensor(nested.lengths)
        loss: torch.Tensor
        loss, _ = torch.ops.counterweight.policy_loss(
            self._number,
            *inputs.values(),
            sequence_lengths,
            torch.is_grad_enabled() and current_log_probs.requires_grad,
        )
        return loss

    def compute(self, with_gradient: bool, inputs: dict[str, Any]) -> Result[torch.Tensor]:
        """Asks the service.

        Raises:
            InvalidRequestError: The method has no policy loss, or as ``Client.correct`` says.
        """
        outputs = ("loss", "gradient") if with_gradient else ("loss",)
        result: Result[torch.Tensor] = self._client.correct(
            method=self._method, outputs=outputs, **self._settings, **inputs
        )
        if result.loss is None:
            raise refuse([Violation("method", "has no policy loss")], result.request_id)
        self.last_result = replace(result, gradient=None)
        return result


def _loss_dtype(current_log_probs: torch.Tensor) -> torch.dtype:
    return torch.promote_types(current_log_probs.dtype, torch.float32)


@torch.library.custom_op("counterweight::policy_loss", mutates_args=())
def _policy_loss(
    number: int,
    current_log_probs: torch.Tensor,
    response_mask: torch.Tensor,
    advantages: torch.Tensor | None,
    rollout_log_probs: torch.Tensor | None,
    old_log_probs: torch.Tensor | None,
    ref_log_probs: torch.Tensor | None,
    sequence_lengths: torch.Tensor | None,
    with_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the loss, and its gradient, which is empty where none is wanted."""
    operator = _operators.get(number)
    if operator is None:
        raise RuntimeError("the PolicyLossOperator of this compiled code no longer exists")
    result = operator.compute(
        with_gradient,
        {
            "current_log_probs": current_log_probs,
            "response_mask": response_mask,
            "advantages": advantages,
            "rollout_log_probs": rollout_log_probs,
            "old_log_probs": old_log_probs,
            "ref_log_probs": ref_log_probs,
            "sequence_lengths": sequence_lengths,
        },
    )
    device = current_log_probs.device
    loss = torch.tensor(result.loss, dtype=_loss_dtype(current_log_probs), device=device)
    gradient = result.gradient
    return loss, torch.empty(0, device=device) if gradient is None else gradient


@_policy_loss.register_fake
def _(
    number: int,
    current_log_probs: torch.Tensor,
    response_mask: torch.Tensor,
    advantages: torch.Tensor | None,
    rollout_log_probs: torch.Tensor | None,
    old_log_probs: torch.Tensor | None,
    ref_log_probs: torch.Tensor | None,
    sequence_lengths: torch.Tensor | None,
    with_gradient: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = response_mask.shape if with_gradient else (0,)
    return (
        current_log_probs.new_empty((), dtype=_loss_dtype(current_log_probs)),
        current_log_probs.new_empty(shape, dtype=torch.float32),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    _, gradient = output
    ctx.mark_non_differentiable(gradient)
    ctx.save_for_backward(gradient)
    ctx.dtype = inputs[1].dtype


@once_differentiable
def _backward(ctx: Any, upstream: torch.Tensor, _: torch.Tensor) -> tuple[Any, ...]:
    (gradient,) = ctx.saved_tensors
    # In float32, as the backward of counterweight_rl.torch: a loss scale beyond float16 would
    # overflow before the multiplication.
    return None, (upstream * gradient).to(ctx.dtype), *[None] * 7


_policy_loss.register_autograd(_backward, setup_context=_save)
