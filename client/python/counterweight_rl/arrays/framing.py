"""Requests and answers as protobuf's bytes, for servers.

A tensor is a bytes field. The protobuf runtime copies such a field when it is assigned and again
when the message is serialized, and as often on the way back. Messages can be concatenated (a
repeated field may be appended to a serialized message), so this module frames tensors around the
caller's memory and joins them once; it slices answers instead of parsing them. For 8 Mi tokens (two
float32 log-probs and a mask, 75 MB) that takes 40 ms instead of 190 ms up and 6 ms instead of 42 ms
down (protobuf 7.36 and 5.26).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from google.protobuf import json_format, struct_pb2
from google.protobuf.message import DecodeError, Message

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays.wire import AnswerTensor, WireTensor
from counterweight_rl.contract.wire_format import prefix, split

MessageT = TypeVar("MessageT", bound=Message)


def to_request(request: Mapping[str, Any]) -> pb.CorrectRequest:
    """Returns the message of a request, which has protobuf's JSON form with the proto's names."""
    return to_message(request, pb.CorrectRequest)


def to_message(request: Mapping[str, Any], kind: type[MessageT]) -> MessageT:
    """Returns the message of a request of some kind, which may have a method, and shadows."""
    if "method" in request:
        request = {**request, "method": _with_struct(request["method"])}
    if "shadows" in request:
        request = {**request, "shadows": [_with_struct(each) for each in request["shadows"]]}
    return kind(**request)


def _with_struct(method: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older versions make no Struct of a dict in a constructor."""
    if "dialect" not in method:
        return method
    block = struct_pb2.Struct()
    block.update(method["dialect"]["block"])
    return {"dialect": {**method["dialect"], "block": block}}


def tensor_head(role: int, dtype: int) -> bytes:
    """Returns a Tensor without data."""
    head: dict[str, Any] = {"role": role, "dtype": dtype}
    return tensor_pb2.Tensor(**head).SerializeToString()


def encode_request(head: pb.CorrectRequest, tensors: Iterable[WireTensor]) -> bytes:
    """Serializes ``head`` with ``tensors`` appended to its own; copies each tensor once."""
    parts: list[bytes | memoryview] = [head.SerializeToString()]
    for tensor in tensors:
        fixed = tensor_head(tensor.role, tensor.dtype)
        body = fixed + prefix(tensor_pb2.Tensor.DATA_FIELD_NUMBER, tensor.data.nbytes)
        length = len(body) + tensor.data.nbytes
        parts += [prefix(pb.CorrectRequest.TENSORS_FIELD_NUMBER, length), body]
        parts.append(tensor.data)
    return b"".join(parts)


def decode(kind: type[MessageT], data: bytes) -> MessageT:
    """Parses a message.

    Raises:
        ValueError: The bytes are none.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from error


def to_json(message: Message) -> dict[str, Any]:
    """Returns protobuf's JSON form of a message."""
    return json_format.MessageToDict(message)


def decode_answer(data: bytes | memoryview) -> tuple[dict[str, Any], list[AnswerTensor]]:
    """Reads a CorrectResponse; the tensors are views into ``data`` and left out of the message.

    Raises:
        ValueError: The bytes are not a CorrectResponse.
    """
    rest, bodies = split(memoryview(data), pb.CorrectResponse.TENSORS_FIELD_NUMBER)
    tensors = []
    for body in bodies:
        fixed, payloads = split(body, tensor_pb2.Tensor.DATA_FIELD_NUMBER)
        payload = payloads[-1] if payloads else memoryview(b"")
        head = decode(tensor_pb2.Tensor, fixed)
        place = head.shared_memory if head.HasField("shared_memory") else None
        tensors.append(AnswerTensor(head.role, head.dtype, payload, place))
    return to_json(decode(pb.CorrectResponse, rest)), tensors
