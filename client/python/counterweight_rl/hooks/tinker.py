"""Tinker and compatible services: ``training_client.forward_backward_custom(data, loss_fn)``.

    from counterweight_rl.hooks.tinker import policy_loss

    loss_fn = policy_loss({"preset": "token_tis", "upper": 2.0})
    training_client.forward_backward_custom(data, loss_fn)

It costs a forward pass more than a loss of Tinker's own. ``traceable`` returns a token-level method
as plain torch, which Tinker's servers run in one pass, without the service.

Each Datum's ``loss_fn_inputs`` hold what tinker_cookbook puts there: ``logprobs`` of the sampler,
``advantages`` and, optionally, ``mask``; and ``old_logprobs`` where a batch serves several
optimizer steps. Without those the log-probs of this forward pass are the old ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from counterweight_rl import trackers
from counterweight_rl.choices import LossAggregation, LossDenominator, RatioSource, Surrogate
from counterweight_rl.compat import _service
from counterweight_rl.config import CorrectionConfig, Method, PolicyLoss, Preset
from counterweight_rl.hooks import _arguments, _traceable
from counterweight_rl.hooks._method import read_method, with_loss
from counterweight_rl.torch import attach, outputs_for

LossFn: TypeAlias = Callable[
    [Sequence[Any], Sequence[torch.Tensor]], tuple[torch.Tensor, dict[str, float]]
]


def policy_loss(method: Any = None) -> LossFn:
    """Returns a loss function for ``forward_backward_custom``.

    Args:
        method: A preset's name, a mapping or JSON, as in ``hooks/README.md``; or a Preset or
            CorrectionConfig. None: ``COUNTERWEIGHT_METHOD``, else no correction but the ratio
            current/sampler, which is Tinker's own "importance_sampling". A method without a
            ``policy_loss`` weighs the ratio current/old times the advantage.

    Returns:
        A function of the data and their log-probs, one [T_i] tensor for each Datum. It returns the
        sum over all tokens, Tinker's reduction, and metrics named ``counterweight/...``. It raises
        ValueError if inputs are missing or of another shape than the log-probs, and the errors of
        ``Client.correct``.

    Raises:
        ValueError: A setting out of its range, or a method that the server refuses.
        CounterweightError: The server does not answer.
    """
    chosen = _method(method)
    _try(chosen)

    def loss_fn(
        data: Sequence[Any], logprobs: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, dict[str, float]]:
        inputs = [
            _inputs(index, datum, _length(index, one))
            for index, (datum, one) in enumerate(zip(data, logprobs, strict=True))
        ]
        current, result = _ask(chosen, inputs, logprobs)
        _service.end_step()  # its optimizer is Tinker's
        return attach(current, result), trackers.scalars(result)

    return loss_fn


def traceable(method: Any = None, *, old_logprobs: bool = False) -> _traceable.Traceable:
    """Returns a token-level method as a function for ``ServiceClient.create_custom_loss``.

        fn = traceable({"preset": "token_tis", "upper": 2.0})
        ranks = dict.fromkeys(inspect.signature(fn).parameters, 1)
        loss = service_client.create_custom_loss(fn, input_ranks=ranks).result()
        training_client.forward_backward_custom(data, loss)

    The function takes the log-probs of a Datum's targets and those of its ``loss_fn_inputs`` that
    have the parameters' names, each [T]: ``sampler_logprobs`` (a Tinker loss has one ``logprobs``,
    the targets'), ``advantages``, ``mask`` and, if asked for, ``old_logprobs``. It returns the sum
    over the tokens and the sums ``custom/counterweight_tokens``, ``_kl`` and ``_k3``, and agrees
    with ``policy_loss`` of the same method but for rounding. It checks nothing: send a batch now
    and then to the service too, for metrics, findings and refusals.

    Args:
        method: As in ``policy_loss``; the service checks it and spells presets out. Weights must be
            of level TOKEN, and the surrogate one of importance_sampling, ppo_clip, cispo, dro,
            reinforce.
        old_logprobs: Whether a batch serves several optimizer steps, so that the data have the
            first step's. False: the log-probs of the forward pass are the old ones.

    Raises:
        ValueError: A setting out of its range, a method that the server refuses, or one that needs
            sequences, rules or a reference policy.
        CounterweightError: The server does not answer.
    """
    chosen = _method(method)
    if isinstance(chosen, Preset):
        chosen = _spelled_out(chosen)
    function = _traceable.function_of(chosen, with_old=old_logprobs)
    _try(chosen)
    return function


def _spelled_out(preset: Preset) -> CorrectionConfig:
    """Returns the preset as the server's table has it, with its bounds and loss."""
    known = {info.name: info for info in _service.client().list_methods()}
    if preset.name not in known:
        raise ValueError(f"the server has no preset {preset.name!r}")
    config = dataclasses.replace(
        known[preset.name].config,
        kl_penalty=preset.kl_penalty,
        policy_loss=preset.policy_loss,
    )
    return _traceable.with_bounds(preset.name, config, preset.parameters)


def _try(method: Method) -> None:
    """Requests the loss of two tokens."""
    zeros, ones = torch.zeros(2), torch.ones(2)
    _ask(method, [{"logprobs": zeros, "advantages": zeros, "mask": ones}], [zeros], metrics=False)


def _length(index: int, logprobs: torch.Tensor) -> int:
    """Returns the tokens of a Datum.

    Raises:
        ValueError: It has several targets for each position.
    """
    if logprobs.dim() != 1:
        raise ValueError(
            f"data[{index}] has log-probs of shape {list(logprobs.shape)}, not of one target token "
            "for each position"
        )
    return int(logprobs.numel())


def _inputs(index: int, datum: Any, tokens: int) -> dict[str, torch.Tensor]:
    given = datum.loss_fn_inputs
    found = {}
    for name in ("logprobs", "advantages", "mask", "old_logprobs"):
        if name not in given:
            if name in ("logprobs", "advantages"):
                raise ValueError(f"data[{index}].loss_fn_inputs has no {name!r}")
            continue
        found[name] = given[name].to_torch()
        if list(found[name].shape) != [tokens]:
            raise ValueError(
                f"data[{index}].loss_fn_inputs[{name!r}] has shape {list(found[name].shape)}, "
                f"not [{tokens}], that of its log-probs"
            )
    found.setdefault("mask", torch.ones(tokens, dtype=torch.bool))
    return found


def _ask(
    method: Method,
    inputs: Sequence[dict[str, torch.Tensor]],
    logprobs: Sequence[torch.Tensor],
    **options: Any,
) -> tuple[torch.Tensor, Any]:
    current = torch.cat(list(logprobs))
    with_old = [one["old_logprobs"] for one in inputs if "old_logprobs" in one]
    if with_old and len(with_old) != len(inputs):
        raise ValueError("either all data have 'old_logprobs' in their loss_fn_inputs, or none")
    result = _service.ask(
        method,
        current_log_probs=current,
        old_log_probs=torch.cat(with_old) if with_old else current.detach(),
        rollout_log_probs=torch.cat([one["logprobs"] for one in inputs]),
        advantages=torch.cat([one["advantages"] for one in inputs]),
        response_mask=torch.cat([one["mask"] for one in inputs]),
        sequence_lengths=[one.numel() for one in logprobs],
        outputs=outputs_for(current),
        **options,
    )
    return current, result


def _method(given: Any) -> Preset | CorrectionConfig:
    method: Method | None
    if given is None:
        method = _arguments.method_of(None)
    elif isinstance(given, (Preset, CorrectionConfig)):
        method = given
    else:
        method = read_method("method", given)
    source = RatioSource.CURRENT_ROLLOUT if method is None else RatioSource.CURRENT_OLD
    loss = PolicyLoss(
        surrogate=Surrogate.IMPORTANCE_SAMPLING,
        aggregation=LossAggregation.TOKEN_SUM,
        denominator=LossDenominator.ORIGINAL,
        ratio_source=source,
    )
    method = CorrectionConfig() if method is None else method
    return with_loss(method, loss, LossAggregation.TOKEN_SUM)
