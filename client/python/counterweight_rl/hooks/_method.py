"""A method out of a trainer's configuration: a preset's name, or a mapping or JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from counterweight_rl.choices import LossAggregation, LossDenominator, RatioSource, Surrogate
from counterweight_rl.config import CorrectionConfig, Dialect, Method, PolicyLoss, Preset
from counterweight_rl.suggestions import did_you_mean

WEIGHED = PolicyLoss(
    surrogate=Surrogate.IMPORTANCE_SAMPLING,
    aggregation=LossAggregation.TOKEN_SUM,
    denominator=LossDenominator.ORIGINAL,
    ratio_source=RatioSource.CURRENT_OLD,
)
"""The loss of a method that has none: weights times the ratio current/old times the advantage."""


def read_method(source: str, value: Any) -> Method:
    """Reads "token_tis", {"preset": "token_tis", "upper": 3.0} or {"dialect": "verl", ...}.

    Args:
        source: The setting's name, with which messages begin.
        value: A preset's name, or a mapping or the text of a JSON object. With "preset" its other
            keys are the preset's parameters, and ``policy_loss``: a mapping of PolicyLoss's fields
            without aggregation and denominator, which the trainer determines. With "dialect" they
            are that system's block, and ``release``.

    Raises:
        ValueError: It has another form. The server checks names and numbers.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"{source} is not valid JSON: {error}") from None
    if isinstance(value, str) and value:
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"{source} must be a preset's name or a mapping; got {value!r}")
    fields = {str(name): item for name, item in value.items()}
    if ("preset" in fields) == ("dialect" in fields):
        raise ValueError(
            f'{source} must have one of the keys "preset" and "dialect"; got {value!r}'
        )
    kind = "dialect" if "dialect" in fields else "preset"
    if not isinstance(fields[kind], str):
        raise ValueError(f"{source}.{kind} must be a name; got {fields[kind]!r}")
    if "dialect" in fields:
        system, release = fields.pop("dialect"), fields.pop("release", "")
        return Dialect(system, fields, release=str(release))
    loss = fields.pop("policy_loss", None)
    name = fields.pop("preset")
    policy_loss = None if loss is None else _policy_loss(f"{source}.policy_loss", loss)
    return Preset(name, policy_loss=policy_loss, **fields)


def has_loss(method: Method) -> bool:
    """Returns whether the method comes with a policy loss of its own, as a dialect does."""
    if isinstance(method, str):
        return False
    return isinstance(method, Dialect) or method.policy_loss is not None


def with_loss(
    method: Method,
    default: PolicyLoss,
    aggregation: LossAggregation,
    denominator: LossDenominator | None = None,
) -> Preset | CorrectionConfig:
    """Returns the method with its own policy loss or the default, aggregated in this way.

    ``denominator``: the divisor, too; None: the loss's own.

    Raises:
        ValueError: The method is a dialect.
    """
    if isinstance(method, str):
        method = Preset(method)
    if isinstance(method, Dialect):
        raise ValueError("the method must be a preset: a dialect has an aggregation of its own")
    loss = dataclasses.replace(method.policy_loss or default, aggregation=aggregation)
    if denominator is not None:
        loss = dataclasses.replace(loss, denominator=denominator)
    if isinstance(method, CorrectionConfig):
        return dataclasses.replace(method, policy_loss=loss)
    return Preset(
        method.name,
        policy_loss=loss,
        kl_penalty=method.kl_penalty,
        allow_unknown=True,
        **method.parameters,
    )


def _policy_loss(source: str, value: Any) -> PolicyLoss:
    if not isinstance(value, Mapping):
        raise ValueError(f"{source} must be a mapping; got {value!r}")
    for name in ("aggregation", "denominator"):
        if name in value:
            raise ValueError(f"{source}.{name} is the trainer's to determine; leave it out")
    known = {field.name for field in dataclasses.fields(PolicyLoss)}
    for name in value:
        if name not in known:
            raise ValueError(f"{source} has no field {name!r}{did_you_mean(name, known)}")
    if "surrogate" not in value:
        raise ValueError(f"{source}.surrogate is missing")
    # The hook replaces these two.
    return PolicyLoss(
        aggregation=LossAggregation.TOKEN_SUM,
        denominator=LossDenominator.ORIGINAL,
        **value,
    )
