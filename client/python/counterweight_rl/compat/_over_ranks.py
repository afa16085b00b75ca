"""One answer for the rows of all ranks: the setting ``over_ranks``."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterweight_rl.config import Method
from counterweight_rl.distributed.step import Step
from counterweight_rl.result import Result

if TYPE_CHECKING:
    from counterweight_rl.client import Client

REFUSAL = (
    "over_ranks is set, and this function is called for each micro-batch, whose number may differ "
    "between ranks, so that some ranks would wait for others: unset COUNTERWEIGHT_OVER_RANKS here, "
    "or compute the step with counterweight_rl.distributed.Step"
)

_numbers = itertools.count()


def correct(client: Client, chosen: Any, method: Method, call: Mapping[str, Any]) -> Result[Any]:
    """Returns this rank's rows of the answer to one call with the rows of all ranks.

    Every rank calls it as often as the others, also one without rows.

    Args:
        client: Of this rank.
        chosen: A process group, or True for the default one.
        method: The method of all ranks.
        call: Other arguments of ``Client.correct``, without those of a loss.

    Raises:
        ValueError: torch.distributed is not initialized.
        CounterweightError: As ``Step.reduce``.
    """
    arguments = dict(call)
    labels = {"run": arguments.pop("run")}
    if client.publishes:
        labels["number"] = next(_numbers)
    step = Step(client, method, group=_group(chosen), **labels)
    has_tokens = bool((arguments["response_mask"] != 0).any())
    result = step.add(**arguments) if has_tokens else _without_tokens(client, method, arguments)
    totals = step.reduce()
    counts = step.counts
    if has_tokens and counts is not None and counts.weight_mean is not None:
        result = step.finish(**arguments)
    return dataclasses.replace(
        result,
        metrics=dict(totals.metrics),
        rules=totals.rules,
        non_finite_tokens=totals.non_finite_tokens,
        warnings=totals.warnings,
        staleness=totals.staleness,
    )


def _without_tokens(client: Client, method: Method, arguments: Mapping[str, Any]) -> Result[Any]:
    """Returns the answer of a rank that has no token; systems refuse such a batch."""
    mask = arguments["response_mask"]
    trial = {
        name: value.new_zeros((1, 1)) if getattr(value, "shape", None) == mask.shape else value
        for name, value in arguments.items()
    }
    trial["response_mask"] = mask.new_ones((1, 1))
    result: Result[Any] = client.correct(method=method, metrics=False, **trial)
    none = {
        name: tensor.new_zeros(mask.shape)
        for name in ("weights", "keep_mask")
        if (tensor := getattr(result, name)) is not None
    }
    return dataclasses.replace(result, **none)


def _group(chosen: Any) -> Any:
    if chosen is not True:
        return chosen
    distributed = sys.modules["torch"].distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        raise ValueError(
            "over_ranks is set, and torch.distributed is not initialized in this process; a driver "
            "that has all rows needs no COUNTERWEIGHT_OVER_RANKS"
        )
    return distributed.group.WORLD
