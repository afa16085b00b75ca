"""prime-rl's losses of log-probs: ``prime_rl.trainer.rl.loss``.

    [trainer.loss]
    type = "custom"
    import_path = "counterweight_rl.compat.prime_rl.default_loss_fn"

    [trainer.loss.kwargs.loss_config]
    dppo_mask_high = 0.1

That is the ``rl`` component. prime-rl has no setting for the loss of its ``ref_kl`` component, so
its own name is replaced before the training:

    prime_rl.trainer.rl.loss.ref_kl_loss_fn = counterweight_rl.compat.prime_rl.ref_kl_loss_fn

Numbers and quirks are those of the dialect ``prime_rl`` (PrimeIntellect-ai/prime-rl @559b4477).
``counterweight_rl.hooks.prime_rl`` has the service's other methods. The other names of the module
(``LossInputs``, ``compute_loss``, ...) are prime-rl's own, imported on first use. Differences:

* ``loss_weights`` other than 1 are a ValueError.
* A field that a configuration of prime-rl's does not have is an error if it is in a mapping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from counterweight_rl.compat import _peers, _prime_rl_ref_kl, _service
from counterweight_rl.dialect_blocks import to_mapping
from counterweight_rl.torch import attach, outputs_for

__all__ = ["LossOutputs", "default_loss_fn", "ipo_loss_fn", "ref_kl_loss_fn"]

_HOME = "prime_rl.trainer.rl.loss"

__getattr__ = _peers.getattr_from(
    __name__,
    {
        _HOME: (
            *("LossFn", "LossInputs", "ce_loss_fn", "compute_entropy", "compute_loss"),
            *("compute_importance_ratio_and_mismatch_kl", "selective_log_softmax"),
            *("setup_rl_loss_fn", "shift_tensor_left", "shift_tensor_right"),
        )
    },
)


@dataclass
class LossOutputs:
    """The fields of prime-rl's class of this name."""

    loss: torch.Tensor
    metrics: dict[str, torch.Tensor]


def default_loss_fn(inputs: Any, loss_config: Any = None) -> LossOutputs:
    """Computes the default loss of one sequence: DPPO's mask by signed probability differences.

    Args:
        inputs: prime-rl's ``LossInputs``: trainer_logprobs, which get the gradient,
            inference_logprobs, advantages and loss_mask, each [T].
        loss_config: A DefaultLossConfig, or a mapping or object with its fields; an absent one has
            prime-rl's default. None: all defaults.

    Returns:
        The sum over tokens, and prime-rl's metrics, means of the sequence.

    Raises:
        ValueError: loss_weights other than 1.
        InvalidRequestError: See ``counterweight_rl.compat``.
    """
    loss, dropped, metrics = _answer("default", inputs, loss_config)
    mask, gain = inputs.loss_mask, inputs.advantages
    with torch.no_grad():
        signs = {"high": gain > 0, "low": gain < 0}
        metrics |= {f"is_masked_{n}": _mean(dropped & one, mask) for n, one in signs.items()}
        metrics |= {
            "masked_advantage_positive": _mean(signs["high"], dropped),
            "masked_advantage_negative": _mean(signs["low"], dropped),
        }
    return LossOutputs(loss, metrics)


def ipo_loss_fn(inputs: Any, loss_config: Any = None) -> LossOutputs:
    """Computes the IPO loss of one sequence: its mask is by absolute probability differences.

    Args:
        inputs: As in ``default_loss_fn``.
        loss_config: The same of an IPOLossConfig.

    Returns:
        The sum over tokens, and prime-rl's metrics, means of the sequence.

    Raises:
        ValueError: As in ``default_loss_fn``.
        InvalidRequestError: The same.
    """
    loss, _, metrics = _answer("ipo", inputs, loss_config)
    return LossOutputs(loss, metrics)


def ref_kl_loss_fn(inputs: Any) -> LossOutputs:
    """Computes the loss of on-policy distillation of one sequence.

    Args:
        inputs: As in ``default_loss_fn``, but the advantages are not read: they are the differences
            of ref_logprobs, [T], and trainer_logprobs, as constants.

    Returns:
        The sum over tokens, and prime-rl's metrics, means of the sequence.

    Raises:
        ValueError: There are no ref_logprobs, or as in ``default_loss_fn``.
        InvalidRequestError: The same.
    """
    check_weights(inputs)
    if inputs.ref_logprobs is None:
        raise ValueError(
            "ref_kl loss type requires ref_logprobs — use the 'opd' or 'opsd' algorithm."
        )
    current, mask = inputs.trainer_logprobs, inputs.loss_mask
    rollout = inputs.inference_logprobs.detach()
    gain = torch.where(mask, (inputs.ref_logprobs - current).detach(), 0.0)
    result = _service.ask(
        _prime_rl_ref_kl.METHOD,
        current_log_probs=current,
        old_log_probs=rollout,
        rollout_log_probs=rollout,
        ref_log_probs=rollout,
        advantages=gain,
        response_mask=mask,
        sequence_lengths=[current.numel()],
        outputs=(*outputs_for(current), "weights"),
        metrics=False,
    )
    assert result.weights is not None  # requested
    dropped = mask & (result.weights == 0)
    metrics = _trust_region(current, inputs.inference_logprobs, mask, dropped)
    found = {f"ref_kl/{name}": value for name, value in metrics.items()}
    return LossOutputs(attach(current, result), {**found, "ref_kl": _mean(gain, mask)})


def check_weights(inputs: Any) -> None:
    """Raises the ValueError of loss_weights other than 1."""
    weights = inputs.loss_weights
    if weights is not None and bool((weights[inputs.loss_mask] != 1).any()):
        raise ValueError(
            "counterweight_rl takes no loss_weights but 1: an algorithm that weighs the tokens of "
            "its rl component needs prime-rl's own losses"
        )


def _answer(
    kind: str, inputs: Any, loss_config: Any
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Returns the loss, the tokens that it left out, and the metrics of both losses."""
    check_weights(inputs)
    block = dict(to_mapping("prime_rl", {} if loss_config is None else loss_config))
    current, mask = inputs.trainer_logprobs, inputs.loss_mask
    result = _service.correct(
        "prime_rl",
        # prime-rl divides the sum later.
        {**block, "type": kind, "rl_scale": 1.0},
        release="",  # it runs from git
        current_log_probs=current,
        rollout_log_probs=inputs.inference_logprobs.detach(),
        advantages=inputs.advantages.detach(),
        response_mask=mask,
        sequence_lengths=[current.numel()],
        outputs=(*outputs_for(current), "keep_mask"),
        metrics=False,
        own_warning="Metrics of prime_rl",
    )
    assert result.keep_mask is not None  # requested
    dropped = mask & ~result.keep_mask.bool()
    metrics = _trust_region(current, inputs.inference_logprobs, mask, dropped)
    return attach(current, result), dropped, metrics


@torch.no_grad()
def _trust_region(
    current: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor, dropped: torch.Tensor
) -> dict[str, torch.Tensor]:
    ratio = torch.where(mask, current - rollout, 0.0).float()
    mismatch = ratio.expm1() - ratio
    return {
        "masked_mismatch_kl": _mean(mismatch, dropped),
        "unmasked_mismatch_kl": _mean(mismatch, mask & ~dropped),
        "is_masked": _mean(dropped, mask),
    }


def _mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean where the mask is 1; 0 over nothing."""
    return values[mask].sum() / mask.sum().clamp(min=1)
