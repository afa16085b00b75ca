"""Scalars of messages: their defaults, their checks and their bytes."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from counterweight_rl.contract.descriptors import Field
from counterweight_rl.contract.wire_format import (
    FIXED32,
    FIXED64,
    LENGTH_DELIMITED,
    VARINT,
    varint,
)

_INTEGERS = {
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
    "enum": (-(1 << 31), (1 << 31) - 1),
}
_UNSIGNED = 1 << 64


class Scalar(NamedTuple):
    """A type of fields.

    Attributes:
        default: The value of an absent field.
        wire_type: The wire type of one value.
        encode: Converts a value to the bytes after the tag.
        decode: Converts a varint's value, or the bytes of another wire type.
    """

    default: Any
    wire_type: int
    encode: Callable[[Any], bytes]
    decode: Callable[[Any], Any]


def _integer(name: str) -> Scalar:
    bits = 32 if name in ("int32", "enum", "uint32") else 64
    signed = _INTEGERS[name][0] < 0

    def decode(value: int) -> int:
        value &= (1 << bits) - 1
        return value - (1 << bits) if signed and value >> (bits - 1) else value

    return Scalar(0, VARINT, lambda value: varint(value % _UNSIGNED), decode)


def _fixed(code: str, wire_type: int) -> Scalar:
    packed = struct.Struct(code)
    return Scalar(0.0, wire_type, packed.pack, lambda data: packed.unpack(data)[0])


SCALARS = {
    **{name: _integer(name) for name in _INTEGERS},
    "bool": Scalar(False, VARINT, varint, bool),
    "double": _fixed("<d", FIXED64),
    "float": _fixed("<f", FIXED32),
    "string": Scalar("", LENGTH_DELIMITED, str.encode, lambda data: str(data, "utf-8")),
    "bytes": Scalar(b"", LENGTH_DELIMITED, bytes, bytes),
}
"""The types by name."""


def is_default(value: Any) -> bool:
    """Whether a field without presence leaves the value out; -0.0 is written."""
    return not value and not (isinstance(value, float) and math.copysign(1.0, value) < 0)


def checked(field: Field, value: Any) -> Any:
    """Returns ``value`` as the field holds it.

    Raises:
        TypeError: A wrong type.
        ValueError: A number that the field cannot hold, or an unknown name of an enum's value.
    """
    if field.type == "enum" and isinstance(value, str):
        assert field.enum_type is not None
        return field.enum_type.Value(value)
    if field.type in _INTEGERS:
        number = operator.index(value)
        least, largest = _INTEGERS[field.type]
        if not least <= number <= largest:
            raise ValueError(f"must be from {least} to {largest}")
        return number
    if field.type in ("double", "float"):
        if isinstance(value, (str, bytes)):
            raise TypeError(f"must be a number, not {type(value).__name__}")
        return float(value)
    if field.type == "bool":
        return bool(operator.index(value))
    expected: type[Any] = str if field.type == "string" else bytes
    if not isinstance(value, expected):
        raise TypeError(f"must be {expected.__name__}, not {type(value).__name__}")
    return expected(value)  # of a subclass
