"""prime-rl: a custom loss of the trainer's configuration.

    [trainer.loss]
    type = "custom"
    import_path = "counterweight_rl.hooks.prime_rl.policy_loss"

    [trainer.loss.kwargs]
    method = { preset = "token_tis", upper = 3.0 }

prime-rl calls the function once for each sequence of a micro-batch, sums what it returns, and
divides by the global number of tokens. It has no log-probs of the step's beginning, so those of
this forward pass are the old ones. Without a method it is prime-rl's own default loss.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from counterweight_rl.choices import (
    KlEstimator,
    LossAggregation,
    LossDenominator,
    RatioSource,
    Surrogate,
)
from counterweight_rl.compat import _service
from counterweight_rl.config import CorrectionConfig, KlPenalty, Method, PolicyLoss
from counterweight_rl.hooks import _arguments
from counterweight_rl.hooks._method import with_loss
from counterweight_rl.torch import attach, outputs_for

__all__ = ["LossOutputs", "policy_loss"]

# Metrics that every method has; prime-rl averages each over the sequences.
_METRICS = ("kl", "k3", "kept_token_fraction", "weight_mean")

_started: tuple[int, Method] | None = None


@dataclass
class LossOutputs:
    """The fields of prime-rl's class of this name."""

    loss: torch.Tensor
    metrics: dict[str, torch.Tensor]


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
        ValueError: An unknown setting or one out of its range, or loss weights other than 1.
        InvalidRequestError: See ``counterweight_rl.compat``.
        CounterweightError: The server does not answer.
    """
    global _started
    if _started is None or _started[0] != os.getpid():
        _started = os.getpid(), _start(SimpleNamespace(**kwargs))
    weights = inputs.loss_weights
    if weights is not None and bool((weights[inputs.loss_mask] != 1).any()):
        raise ValueError(
            "counterweight_rl.hooks.prime_rl takes no loss_weights but 1: an algorithm that weighs "
            "the tokens of its rl component needs prime-rl's own losses"
        )
    current = inputs.trainer_logprobs
    result = _ask(
        _started[1], current, inputs.inference_logprobs, inputs.advantages, inputs.loss_mask
    )
    metrics = {
        f"counterweight/{name}": current.new_tensor(result.metrics[name], dtype=torch.float32)
        for name in _METRICS
        # A sequence without a token that counts has none.
        if not math.isnan(result.metrics.get(name, math.nan))
    }
    return LossOutputs(attach(current, result), metrics)


def _start(settings: Any) -> Method:
    """Reads the settings, and requests the loss of two tokens."""
    _arguments.apply(settings, prefix="")
    given = _arguments.method_of(settings, prefix="")
    method: Method = _default() if given is None else with_loss(given, _WEIGHTED, _SUM)
    zeros = torch.zeros(2)
    _ask(method, zeros, zeros, zeros, torch.ones(2, dtype=torch.bool), metrics=False)
    return method


_SUM = LossAggregation.TOKEN_SUM
# A method without a loss of its own has current/old, which is 1, times the advantage.
_WEIGHTED = PolicyLoss(
    surrogate=Surrogate.IMPORTANCE_SAMPLING,
    aggregation=_SUM,
    denominator=LossDenominator.ORIGINAL,
    ratio_source=RatioSource.CURRENT_OLD,
)


def _default() -> CorrectionConfig:
    """prime-rl's loss of type "default" with its defaults.

    The penalty of 1e-3 times the squared log ratio is K2, half of the square, with the sampler as
    its reference.
    """
    loss = PolicyLoss(
        surrogate=Surrogate.DPPO_TV,
        aggregation=_SUM,
        denominator=LossDenominator.ORIGINAL,
        ratio_source=RatioSource.CURRENT_ROLLOUT,
        clip_low=0.2,
        clip_high=0.2,
    )
    penalty = KlPenalty(estimator=KlEstimator.K2, coefficient=2e-3)
    return CorrectionConfig(policy_loss=loss, kl_penalty=penalty)


def _ask(
    method: Method,
    current: torch.Tensor,
    rollout: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    **options: Any,
) -> Any:
    has_penalty = getattr(method, "kl_penalty", None) is not None
    return _service.ask(
        method,
        current_log_probs=current,
        old_log_probs=current.detach(),
        rollout_log_probs=rollout,
        ref_log_probs=rollout if has_penalty else None,
        advantages=advantages,
        response_mask=mask,
        sequence_lengths=[current.numel()],
        outputs=outputs_for(current),
        **options,
    )
