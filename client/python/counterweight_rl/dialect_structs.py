"""Writes a dialect's block as a Struct."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from numbers import Real
from typing import Any

import numpy as np

from counterweight_rl.arguments import number, text
from counterweight_rl.contract import struct_pb2

# The server reads 100 messages within each other; a mapping in a mapping is three.
MAX_DEPTH = 30
MAX_VALUES = 10_000
_MAX_PATH = 200


def fill_struct(path: str, block: Any, message: struct_pb2.Struct) -> None:
    """Fills ``message`` from a mapping of lists, strings, numbers, booleans, None and mappings.

    Args:
        path: The argument.
        block: The mapping; an enum's member in it counts as its value.
        message: An empty message.

    Raises:
        TypeError: It is no mapping, or holds something else; the message has the path of it.
        ValueError: It is nested more than MAX_DEPTH deep, as one that holds itself is, or holds
            more than MAX_VALUES values, or a number or a text that the wire cannot carry.
    """
    _Writer().struct(path, block, message, 0)


class _Writer:
    """Writes one block."""

    def __init__(self) -> None:
        self._values = 0

    def struct(self, path: str, block: Any, message: struct_pb2.Struct, depth: int) -> None:
        if not isinstance(block, Mapping):
            raise TypeError(f"{path} must be a mapping, not {type(block).__name__}")
        for key, value in block.items():
            if not isinstance(key, str):
                raise TypeError(f"{path}: keys must be strings, not {type(key).__name__}")
            name = text(f"{path}: a key", key)
            self._value(f"{path}.{name}"[:_MAX_PATH], value, message.fields[name], depth + 1)

    def _value(self, path: str, value: Any, message: struct_pb2.Value, depth: int) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise ValueError(f"{path}: a block must have at most {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise ValueError(f"{path}: a block must be nested at most {MAX_DEPTH} deep")
        while isinstance(value, Enum) and value is not value.value:
            value = value.value
        if value is None:
            message.null_value = struct_pb2.NULL_VALUE
        elif isinstance(value, (bool, np.bool_)):
            message.bool_value = bool(value)
        elif isinstance(value, str):
            message.string_value = text(path, value)
        elif isinstance(value, Real):
            message.number_value = number(path, value)
        elif isinstance(value, Mapping):
            message.struct_value.SetInParent()
            self.struct(path, value, message.struct_value, depth)
        elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
            message.list_value.SetInParent()
            for i, item in enumerate(value):
                self._value(
                    f"{path}[{i}]"[:_MAX_PATH], item, message.list_value.values.add(), depth + 1
                )
        else:
            raise TypeError(f"{path}: a block cannot hold a {type(value).__name__}")
