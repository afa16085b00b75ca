"""Values that say by comparison whether two calls want the same."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

from counterweight_rl import config, dialect_blocks

_SCALARS = frozenset({str, int, bool, type(None), bytes})
_STRUCTS = frozenset(
    {
        config.CorrectionConfig,
        config.GlobalCounts,
        config.ImportanceWeight,
        config.KlPenalty,
        config.PolicyLoss,
        config.RejectionRule,
    }
)


class UnknownValueError(Exception):
    """A value of a type that has no frozen form."""


def freeze(value: Any) -> Any:
    """Returns a hashable form that is equal for equal content, types and signs of zeros included.

    Raises:
        UnknownValueError: There is none.
    """
    kind = type(value)
    if kind in _SCALARS:
        return (kind, value)
    if kind is float:
        # 0.0 == -0.0, and a NaN is not equal to itself.
        return (kind, value if value and value == value else repr(value))
    if kind is dict:
        return (kind, *[(freeze(key), freeze(item)) for key, item in value.items()])
    if kind is list or kind is tuple:
        return (kind, *[freeze(item) for item in value])
    if isinstance(value, Enum):
        return (kind, value.name)
    if kind in _STRUCTS:
        return (kind, *[freeze(getattr(value, each.name)) for each in fields(value)])
    if kind is config.Preset:
        parts = (value.name, value.parameters, value.policy_loss, value.kl_penalty)
        return (kind, *[freeze(part) for part in parts])
    if kind is config.Dialect:
        block = value.block
        if type(block) is not dict:
            block = dialect_blocks.to_mapping(value.system, block)
        parts = (value.system, block, value.ignore_unknown_fields, value.release)
        return (kind, *[freeze(part) for part in parts])
    raise UnknownValueError(kind.__name__)
