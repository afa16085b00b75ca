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


# Aliases of YAML make a short block long without end.
_MOST_VALUES = 1000
_DEEPEST = 30


class UnknownValueError(Exception):
    """A value of a type that has no frozen form, or one of very many parts."""


def freeze(value: Any) -> Any:
    """Returns a hashable form that is equal for equal content, types and signs of zeros included.

    Raises:
        UnknownValueError: There is none.
    """
    return _Freezer().freeze(value, _DEEPEST)


class _Freezer:
    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def freeze(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth < 0:
            raise UnknownValueError("too many values")
        kind = type(value)
        if kind in _SCALARS:
            return (kind, value)
        if kind is float:
            # 0.0 == -0.0, and a NaN is not equal to itself.
            return (kind, value if value and value == value else repr(value))
        if kind is dict:
            return (
                kind,
                *[(self.freeze(k, 0), self.freeze(item, depth - 1)) for k, item in value.items()],
            )
        return (kind, *[self.freeze(part, depth - 1) for part in _parts(kind, value)])


def _parts(kind: type[Any], value: Any) -> Any:
    if kind is list or kind is tuple:
        return value
    if isinstance(value, Enum):
        return (value.name,)
    if kind in _STRUCTS:
        return [getattr(value, each.name) for each in fields(value)]
    if kind is config.Preset:
        return (value.name, value.parameters, value.policy_loss, value.kl_penalty)
    if kind is config.Dialect:
        block = value.block
        if type(block) is not dict:
            block = dialect_blocks.to_mapping(value.system, block)
        return (value.system, block, value.ignore_unknown_fields, value.release)
    raise UnknownValueError(kind.__name__)
