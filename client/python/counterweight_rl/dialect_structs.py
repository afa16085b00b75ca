"""Copies a dialect's block to what JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from numbers import Real
from typing import Any

import numpy as np

from counterweight_rl.arguments import number, text

# The server reads 100 messages within each other; a mapping in a mapping is three.
MAX_DEPTH = 30
MAX_VALUES = 10_000
_MAX_PATH = 200


def to_block(path: str, block: Any) -> dict[str, Any]:
    """Copies a mapping of lists, strings, numbers, booleans, None and mappings.

    Args:
        path: The argument.
        block: The mapping; an enum's member in it counts as its value.

    Raises:
        TypeError: It is no mapping, or holds something else; the message has the path of it.
        ValueError: It is nested more than MAX_DEPTH deep, as one that holds itself is, or holds
            more than MAX_VALUES values, or a number or a text that the wire cannot carry.
    """
    return _Writer().struct(path, block, 0)


class _Writer:
    """Copies one block."""

    def __init__(self) -> None:
        self._values = 0

    def struct(self, path: str, block: Any, depth: int) -> dict[str, Any]:
        if not isinstance(block, Mapping):
            raise TypeError(f"{path} must be a mapping, not {type(block).__name__}")
        copy = {}
        for key, value in block.items():
            if not isinstance(key, str):
                raise TypeError(f"{path}: keys must be strings, not {type(key).__name__}")
            name = text(f"{path}: a key", key)
            copy[name] = self._value(f"{path}.{name}"[:_MAX_PATH], value, depth + 1)
        return copy

    def _value(self, path: str, value: Any, depth: int) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise ValueError(f"{path}: a block must have at most {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise ValueError(f"{path}: a block must be nested at most {MAX_DEPTH} deep")
        while isinstance(value, Enum) and value is not value.value:
            value = value.value
        if value is None:
            return None
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        if isinstance(value, str):
            return text(path, value)
        if isinstance(value, Real):
            return number(path, value)
        if isinstance(value, Mapping):
            return self.struct(path, value, depth)
        if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
            return [
                self._value(f"{path}[{i}]"[:_MAX_PATH], item, depth + 1)
                for i, item in enumerate(value)
            ]
        raise TypeError(f"{path}: a block cannot hold a {type(value).__name__}")
