"""The protobuf wire format: fields of a message, without their meaning.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Wire types, https://protobuf.dev/programming-guides/encoding/#structure
VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5


def split(message: memoryview, field: int) -> tuple[bytes, list[memoryview]]:
    """Separates a message into its other fields and the payloads of one length-delimited field.

    Raises:
        ValueError: The bytes are not a protobuf message.
    """
    rest: list[memoryview] = []
    payloads: list[memoryview] = []
    for found in fields(message):
        if found.tag == field << 3 | LENGTH_DELIMITED:
            payloads.append(message[found.payload : found.end])
        else:
            rest.append(message[found.begin : found.end])
    return b"".join(rest), payloads


class Field(NamedTuple):
    """One field of a message: its tag and position.

    Attributes:
        tag: Field number << 3 | wire type.
        value: A varint's value; 0 for other wire types.
        begin: The tag's first byte.
        payload: The first byte of a length-delimited field's payload.
        end: Position after the last byte.
    """

    tag: int
    value: int
    begin: int
    payload: int
    end: int


def fields(message: memoryview) -> Iterator[Field]:
    """Yields the fields of a message in order.

    Raises:
        ValueError: The bytes are not a protobuf message.
    """
    end = 0
    while end < len(message):
        begin, value = end, 0
        tag, end = _read_varint(message, end)
        wire_type, payload = tag & 7, end
        if wire_type == VARINT:
            value, end = _read_varint(message, end)
        elif wire_type == FIXED64:
            end += 8
        elif wire_type == FIXED32:
            end += 4
        elif wire_type == LENGTH_DELIMITED:
            length, payload = _read_varint(message, end)
            end = payload + length
        else:
            raise ValueError(f"unknown protobuf wire type {wire_type}")
        if end > len(message):
            raise ValueError("truncated protobuf message")
        yield Field(tag, value, begin, payload, end)


def last_string(message: memoryview, field: int) -> str:
    """Returns the string field ``field`` of a message, empty if absent."""
    payloads: Sequence[memoryview] = split(message, field)[1]
    return str(payloads[-1], "utf-8", "replace") if payloads else ""


def prefix(field: int, length: int) -> bytes:
    """Returns the bytes that precede the ``length`` bytes of a length-delimited field."""
    return varint(field << 3 | LENGTH_DELIMITED) + varint(length)


def varint(value: int) -> bytes:
    """Encodes a number >= 0."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 64:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("truncated protobuf message")
