"""The part of the protobuf wire format that moves tensors without copying them twice.

A tensor is a bytes field. The protobuf runtime copies such a field when it is assigned and again
when the message is serialized, and as often on the way back. Messages can be concatenated (a
repeated field may be appended to a serialized message), so this module frames tensors around the
caller's memory and joins them once; it slices answers instead of parsing them. For 8 Mi tokens (two
float32 log-probs and a mask, 75 MB) that takes 40 ms instead of 190 ms up and 6 ms instead of 42 ms
down (protobuf 7.36 and 5.26).

The same splitter reads the error details of google.rpc instead of generated code: a second
definition of ``google/rpc/status.proto`` beside googleapis-common-protos in one process is a
TypeError at import, and a dependency on that package would add a pin to trainers' environments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

# Wire types, https://protobuf.dev/programming-guides/encoding/#structure
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5

ELEMENT_BYTES: dict[int, int] = {
    tensor_pb2.D_TYPE_F32: 4,
    tensor_pb2.D_TYPE_BF16: 2,
    tensor_pb2.D_TYPE_F16: 2,
    tensor_pb2.D_TYPE_U8: 1,
    tensor_pb2.D_TYPE_U16: 2,
}
"""The size of each dtype that tensors have."""


@dataclass(frozen=True)
class WireTensor:
    """A tensor in the wire's format.

    Attributes:
        role: The proto's number.
        dtype: The proto's number.
        data: Contiguous bytes.
        owned: Whether only this package uses them; else they may be the caller's array.
    """

    role: int
    dtype: int
    data: memoryview
    owned: bool = False

    @property
    def num_bytes(self) -> int:
        """The tensor's size on the wire."""
        return self.data.nbytes

    def head(self) -> tensor_pb2.Tensor:
        """The message without the bytes."""
        return tensor_pb2.Tensor(
            role=tensor_pb2.TensorRole.Name(self.role), dtype=tensor_pb2.DType.Name(self.dtype)
        )


def encode_request(head: pb.CorrectRequest, tensors: Iterable[WireTensor]) -> bytes:
    """Serializes ``head`` with ``tensors`` appended to its own; copies each tensor once."""
    parts: list[bytes | memoryview] = [head.SerializeToString()]
    for tensor in tensors:
        fixed = tensor.head().SerializeToString()
        body = fixed + prefix(tensor_pb2.Tensor.DATA_FIELD_NUMBER, tensor.data.nbytes)
        length = len(body) + tensor.data.nbytes
        parts += [prefix(pb.CorrectRequest.TENSORS_FIELD_NUMBER, length), body]
        parts.append(tensor.data)
    return b"".join(parts)


@dataclass(frozen=True)
class AnswerTensor:
    """A tensor of an answer: the message without its data, and the data."""

    head: tensor_pb2.Tensor
    data: memoryview


def decode_response(data: bytes | memoryview) -> tuple[pb.CorrectResponse, list[AnswerTensor]]:
    """Parses a CorrectResponse; the tensors are views into ``data`` and left out of the message.

    Raises:
        ValueError: The bytes are not a CorrectResponse.
        DecodeError: The same, reported by protobuf.
    """
    rest, bodies = split(memoryview(data), pb.CorrectResponse.TENSORS_FIELD_NUMBER)
    tensors = []
    for body in bodies:
        fixed, payloads = split(body, tensor_pb2.Tensor.DATA_FIELD_NUMBER)
        payload = payloads[-1] if payloads else memoryview(b"")
        tensors.append(AnswerTensor(tensor_pb2.Tensor.FromString(fixed), payload))
    return pb.CorrectResponse.FromString(rest), tensors


def split(message: memoryview, field: int) -> tuple[bytes, list[memoryview]]:
    """Separates a message into its other fields and the payloads of one length-delimited field.

    Raises:
        ValueError: The bytes are not a protobuf message.
    """
    rest: list[memoryview] = []
    payloads: list[memoryview] = []
    for found in fields(message):
        if found.tag == field << 3 | _LENGTH_DELIMITED:
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
        if wire_type == _VARINT:
            value, end = _read_varint(message, end)
        elif wire_type == _FIXED64:
            end += 8
        elif wire_type == _FIXED32:
            end += 4
        elif wire_type == _LENGTH_DELIMITED:
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
    return varint(field << 3 | _LENGTH_DELIMITED) + varint(length)


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
