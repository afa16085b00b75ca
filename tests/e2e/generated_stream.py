"""Requests by generated stubs, without this project's client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2


def unary_request(batch: dict[str, Any]) -> service_pb2.CorrectRequest:
    """Returns the batch as one message."""
    header, *chunks = stream_frames(batch)
    for frame in chunks:
        header.header.tensors[frame.chunk.tensor].data += frame.chunk.data
    return header.header


def stream_frames(
    batch: dict[str, Any], chunk_bytes: int = 2 << 20
) -> list[service_pb2.CorrectStreamRequest]:
    """Returns the header of token_tis, then each tensor in chunks."""
    header = service_pb2.CorrectRequest()
    header.layout.padded.num_sequences, header.layout.padded.length = batch["response_mask"].shape
    header.method.preset.name = "token_tis"
    chunks = []
    for i, (name, array) in enumerate(batch.items()):
        header.tensors.add(
            role=f"TENSOR_ROLE_{name.upper()}",
            dtype="D_TYPE_U8" if name == "response_mask" else "D_TYPE_F32",
        )
        data = array.tobytes()
        for at in range(0, len(data), chunk_bytes):
            chunk = service_pb2.Chunk(tensor=i, offset=at, data=data[at : at + chunk_bytes])
            chunks.append(service_pb2.CorrectStreamRequest(chunk=chunk))
    return [service_pb2.CorrectStreamRequest(header=header), *chunks]


def read_stream(
    frames: Iterable[service_pb2.CorrectStreamResponse],
) -> tuple[service_pb2.CorrectResponse, list[bytes]]:
    """Returns the result, and each output's bytes."""
    result = service_pb2.CorrectResponse()
    outputs: list[bytearray] = []
    for frame in frames:
        if frame.HasField("result"):
            result = frame.result
            outputs = [bytearray() for _ in result.tensors]
        elif frame.HasField("chunk"):
            output = outputs[frame.chunk.tensor]
            assert frame.chunk.offset == len(output)
            output += frame.chunk.data
    return result, [bytes(output) for output in outputs]
