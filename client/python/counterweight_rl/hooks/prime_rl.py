"""prime-rl: a custom loss of the trainer's configuration.

    [trainer.loss]
    type = "custom"
    import_path = "counterweight_rl.hooks.prime_rl.policy_loss"

    [trainer.loss.kwargs]
    method = { preset = "token_tis", upper = 3.0 }

prime-rl calls the function once for each sequence of a micro-batch, sums what it returns, and
divides by the global number of tokens. It has no log-probs of the step's beginning, so those of
this forward pass are the old ones. Without a method it is prime-rl's own default loss, by the
dialect "prime_rl", whose fields a method may have: ``{ dialect = "prime_rl", type = "ipo" }``.
"""

from __future__ import annotations

import dataclasses
import os
from types import SimpleNamespace
from typing import Any

import torch

from counterweight_rl.choices import LossAggregation
from counterweight_rl.compat import _service
from counterweight_rl.compat.prime_rl import LossOutputs, check_weights
from counterweight_rl.config import Dialect, Method
from counterweight_rl.hooks import _arguments, _drift
from counterweight_rl.hooks._method import WEIGHED, with_loss
from counterweight_rl.torch import attach, outputs_for

__all__ = ["LossOutputs", "policy_loss"]

_started: tuple[int, Method] | None = None


def policy_loss(inputs: Any, **kwargs: Any) -> LossOutputs:
    """Computes the loss of one sequence; prime-rl calls it.

    Args:
        inputs: prime-rl's ``LossInputs``: trainer_logprobs, inference_logprobs, advantages and
            loss_mask, each [T].
        kwargs: ``method``, and settings of ``counterweight_rl.compat``: ``target``, ``run``, ...;
            read with the first sequence of a process.

    Returns:
        The sum over tokens, and metrics named ``counterweight/...``.

    Raises:
        ValueError: An unknown setting or one out of its range, another system's dialect as the
            method, or loss weights other than 1.
        InvalidRequestError: See ``counterweight_rl.compat``.
        CounterweightError: The server does not answer.
    """
    global _started
    if _started is None or _started[0] != os.getpid():
        _started = os.getpid(), _start(SimpleNamespace(**kwargs))
    check_weights(inputs)
    current, rollout, mask = inputs.trainer_logprobs, inputs.inference_logprobs, inputs.loss_mask
    result = _ask(_started[1], current, rollout, inputs.advantages, mask)
    return LossOutputs(attach(current, result), _metrics(result, current, rollout, mask))


def _metrics(
    result: Any, current: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Returns the sequence's means, over which prime-rl averages; none without a token."""
    tokens = mask.sum()
    if not tokens:
        return {}
    means = {
        name: values.sum() / tokens
        for name, values in _drift.of_tokens(current, rollout, mask).items()
    }
    means["kept_token_fraction"] = result.keep_mask.sum() / tokens
    if result.weights is not None:
        means["weight_mean"] = result.weights.sum() / tokens
    return {f"counterweight/{name}": mean.float() for name, mean in means.items()}


def _start(settings: Any) -> Method:
    """Reads the settings, and requests the loss of two tokens."""
    _arguments.apply(settings, prefix="")
    given = _arguments.method_of(settings, prefix="")
    if given is None:
        given = Dialect("prime_rl")
    method: Method
    if isinstance(given, Dialect) and given.system == "prime_rl":
        # prime-rl divides what the hook returns.
        method = dataclasses.replace(given, block={**given.block, "rl_scale": 1.0})
    else:
        method = with_loss(given, WEIGHED, LossAggregation.TOKEN_SUM)
    zeros = torch.zeros(2)
    _ask(method, zeros, zeros, zeros, torch.ones(2, dtype=torch.bool), metrics=False)
    return method


def _ask(
    method: Method,
    current: torch.Tensor,
    rollout: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    **options: Any,
) -> Any:
    return _service.ask(
        method,
        current_log_probs=current,
        old_log_probs=None if isinstance(method, Dialect) else current.detach(),
        rollout_log_probs=rollout,
        advantages=advantages,
        response_mask=mask,
        sequence_lengths=[current.numel()],
        outputs=(*outputs_for(current), "weights", "keep_mask"),
        own_warning="Metrics of prime_rl",
        **options,
    )
