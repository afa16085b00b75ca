"""Frames and reads the messages of ``CorrectStream`` around the tensors' bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl.arrays import framing
from counterweight_rl.contract.wire_format import fields, prefix, varint

ADMISSION = pb.CorrectStreamResponse.ADMISSION_FIELD_NUMBER
RESULT = pb.CorrectStreamResponse.RESULT_FIELD_NUMBER
CHUNK = pb.CorrectStreamResponse.CHUNK_FIELD_NUMBER
SUMMARY = pb.CorrectStreamResponse.SUMMARY_FIELD_NUMBER

_LENGTH_DELIMITED = 2
_VARINT = 0
_TENSOR_TAG = pb.Chunk.TENSOR_FIELD_NUMBER << 3 | _VARINT
_OFFSET_TAG = pb.Chunk.OFFSET_FIELD_NUMBER << 3 | _VARINT
_DATA_TAG = pb.Chunk.DATA_FIELD_NUMBER << 3 | _LENGTH_DELIMITED


class Chunk(NamedTuple):
    """Consecutive bytes of the tensor with that index."""

    tensor: int
    offset: int
    data: memoryview


def header(request: Mapping[str, Any]) -> bytes:
    """Returns the first message up; the request's tensors have no data."""
    return pb.CorrectStreamRequest(header=framing.to_request(request)).SerializeToString()


def chunk(tensor: int, offset: int, data: memoryview) -> bytes:
    """Returns a later message up; copies ``data`` once."""
    head = b"".join(
        (
            varint(_TENSOR_TAG),
            varint(tensor),
            varint(_OFFSET_TAG),
            varint(offset),
            prefix(pb.Chunk.DATA_FIELD_NUMBER, data.nbytes),
        )
    )
    frame = prefix(pb.CorrectStreamRequest.CHUNK_FIELD_NUMBER, len(head) + data.nbytes)
    return b"".join((frame, head, data))


def read(message: bytes) -> tuple[int, memoryview]:
    """Returns the frame's field number and bytes; 0 for a frame of a newer contract.

    Raises:
        ValueError: The bytes are not a message.
    """
    view = memoryview(message)
    kind, payload = 0, view[:0]
    for field in fields(view):
        number, wire_type = field.tag >> 3, field.tag & 7
        if wire_type == _LENGTH_DELIMITED and number in (ADMISSION, RESULT, CHUNK, SUMMARY):
            # The last field of a oneof counts.
            kind, payload = number, view[field.payload : field.end]
    return kind, payload


def read_chunk(payload: memoryview) -> Chunk:
    """Reads the payload of a CHUNK.

    Raises:
        ValueError: The bytes are not a message.
    """
    tensor, offset, data = 0, 0, payload[:0]
    for field in fields(payload):
        if field.tag == _TENSOR_TAG:
            tensor = field.value
        elif field.tag == _OFFSET_TAG:
            offset = field.value
        elif field.tag == _DATA_TAG:
            data = payload[field.payload : field.end]
    return Chunk(tensor, offset, data)
